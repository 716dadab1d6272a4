#pragma once
// How the opcode tests run PTX: one instruction in every lane, or a body of several.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "ptxvm/ptxvm.h"

namespace pf::ptxvm {

// `op` on operands with the bits `in` gives `want`. Literal operands may follow the op's text, as
// in "lop3.b32 @, 0x80": the operands stand for '@' (else at the end).
struct Row {
  std::string op;
  std::vector<uint64_t> in;
  uint64_t want = 0;
  uint64_t want2 = 0;  // of the second target of `d|p`
};
// Runs each row in a full warp and in one of 7 threads and expects `want` in every lane.
// signature: targets, '=', sources; h: 16 bits, r: 32, d: 64, p: predicate; "r|p=rr" has two
// targets.
void expect_rows(const std::string& signature, const std::vector<Row>& rows);

// Runs a body in which these are declared: %out and %in (generic addresses of the buffers), %t (the
// thread's index), %lane, and free registers %p, %h (16 bits), %r, %f (32), %d, %g (64), 48 of
// each; shared memory `smem` of 4096 bytes, aligned to 128. Result: the words of the output buffer,
// 0xffffffff where nothing was written. A finding is a failure.
struct Body {
  std::string text;
  Dim3 block = {32, 1, 1};
  Dim3 grid = {1, 1, 1};
  std::vector<uint32_t> in = {0};
  size_t out_words = 32;
  std::string before = "";  // module-scope text: functions, variables
};
std::vector<uint32_t> run(const Body& body);
// The same, expecting exactly one finding.
Finding finding_of(const Body& body);
// Words of out[thread] = %r0, for bodies that leave their result there: "...body" + kStore.
extern const char* const kStore;

// First words of the opcodes ("add") that these functions executed in some lane.
std::set<std::string>& executed_opcodes();

}  // namespace pf::ptxvm
