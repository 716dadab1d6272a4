#pragma once
// Statements to `Instr`. `Decoder` walks a kernel with the functions that it calls expanded in
// place; `Builder` is what the selector of one opcode sees. A selector must take every modifier of
// its opcode, else the instruction is refused: nothing is ignored silently.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ptxvm/parse.h"
#include "ptxvm/ptx.h"

namespace pf::ptxvm {

class Decoder;

class Builder {
 public:
  Builder(Decoder& decoder, const Statement& statement);

  Instr in;
  bool take(const char* modifier);                             // and remove it
  int take_one(std::initializer_list<const char*> modifiers);  // index of the one present, or -1
  Type type();  // the next type modifier; an error when there is none
  Type type_or(Type otherwise);
  size_t n_operands() const { return statement_.operands.size(); }
  const Operand& operand(size_t i) const;

  // Register-file offsets. Constants get a register of their own.
  uint32_t source(size_t i, Type type);
  uint32_t target(size_t i, Type type);
  uint32_t predicate(size_t i);        // source or target; `_` is the sink
  uint32_t piped_predicate(size_t i);  // the q of `d|q`, or the sink
  bool is_predicate(size_t i);
  // Whether an operand of ld/st is a 64-bit register (it may be wider than the type).
  bool is_wide(const Operand& o, Type type);
  uint32_t constant(uint64_t value, Type type);
  // Fills address64 of `in`; returns the register and sets the displacement.
  uint32_t address(size_t i, int64_t* disp);
  uint32_t vector(size_t i, Type type, bool is_target, uint8_t* n);  // a scalar is a vector of one
  Space space();  // takes .global, .shared::cta, ...; kGeneric when absent
  [[noreturn]] void fail(const std::string& what) const;
  void finish();       // no modifier may be left
  void select_flow();  // bra and brx, which need the labels

 private:
  uint32_t register_of(const Operand& o, Type type, bool is_target);
  Decoder& decoder_;
  const Statement& statement_;
  std::vector<std::string> modifiers_;
};

using Selector = void (*)(Builder&);
using SelectorTable = std::map<std::string, Selector>;
void add_integer_ops(SelectorTable& table);
void add_bit_ops(SelectorTable& table);
void add_compare_ops(SelectorTable& table);
void add_float_ops(SelectorTable& table);
void add_convert_ops(SelectorTable& table);
void add_memory_ops(SelectorTable& table);
void add_warp_ops(SelectorTable& table);
void add_matrix_ops(SelectorTable& table);
const SelectorTable& selectors();
bool is_float(Type t);
// The bits of a literal in a type: 0f and 0d forms, decimal floats, integers with C suffixes.
uint64_t literal(const std::string& text, Type type);
// add, sub, mul, fma, min, max, neg, abs, div of a floating type (ops_float.cc).
void select_float(Builder& b, const char* op, Type t);

void run_printf(Warp& warp, const Instr& in, uint32_t mask);
void run_assertfail(Warp& warp, const Instr& in, uint32_t mask);

// A loaded text: kernels decoded at first use, module variables in device memory.
class Module {
 public:
  explicit Module(std::string text);
  ~Module();
  Kernel& kernel(const std::string& name);  // throws PtxError
  struct Symbol {
    Space space = Space::kGlobal;
    uint64_t address = 0, bytes = 0;
  };
  const Symbol* symbol(const std::string& name) const;
  std::vector<std::string> kernel_names() const;
  const Unit& unit() const { return unit_; }
  bool is_decoded(const std::string& name) const { return kernels_.count(name) != 0; }
  bool owns(const Kernel* kernel) const;

 private:
  void make_variables();
  Unit unit_;
  std::map<std::string, Symbol> symbols_;
  std::map<std::string, std::unique_ptr<Kernel>> kernels_;
};

}  // namespace pf::ptxvm
