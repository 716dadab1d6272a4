#pragma once
// PTX text to statements. Knows the grammar (declarations, blocks, labels, instructions with
// their operands) and nothing of what an opcode means.

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "ptxvm/ptx.h"

namespace pf::ptxvm {

struct PtxError : std::runtime_error {
  PtxError(std::string what, int ptx_line) : std::runtime_error(std::move(what)), line(ptx_line) {}
  int line;  // of the PTX text
};

struct Operand {
  enum class Form : uint8_t { kName, kNumber, kVector, kAddress, kSink };
  Form form = Form::kName;
  std::string name;            // register or symbol; base of an address ("" when absolute)
  std::string pipe;            // second destination, `%p|%q`
  bool negated = false;        // `!%p`
  std::string number;          // as written
  int64_t disp = 0;            // of an address
  std::vector<Operand> parts;  // of a vector
};

struct Variable {
  Space space = Space::kGlobal;
  Type type = Type::kB8;
  std::string name;
  uint64_t count = 1;  // elements; 0 for `[]`
  uint32_t align = 1;
  bool is_extern = false;
  std::vector<std::string> init;  // numbers or names
};

struct Statement {
  enum class Form : uint8_t { kInstruction, kLabel, kOpen, kClose, kRegister, kVariable, kTargets };
  Form form = Form::kInstruction;
  int ptx_line = 0;
  int loc = -1;        // in Unit::locs
  std::string opcode;  // whole, "add.s32"; label or target-list name
  std::string guard;   // predicate name, or empty
  bool guard_negated = false;
  std::vector<Operand> operands;
  // kRegister: type and names; `%r<10>` is name "%r", count 10.
  Type type = Type::kNone;
  std::vector<std::pair<std::string, int>> names;  // count -1: a single register
  Variable variable;
  std::vector<std::string> targets;  // .branchtargets
  std::vector<std::string> call_results, call_arguments;
  std::string callee;
};

struct Function {
  std::string name;
  bool is_entry = false, has_body = false;
  std::vector<Variable> params, results;
  uint32_t max_threads = 0, required_threads = 0, min_blocks = 0;
  std::vector<Statement> body;
};

struct Unit {
  std::vector<Variable> variables;
  std::vector<Function> functions;
  std::vector<Loc> locs;
  std::vector<std::string> files;  // by .file index
};

Unit parse(const std::string& text);

}  // namespace pf::ptxvm
