#pragma once
// The decoder. Names are resolved here once: registers (scoped, per expansion), shared and local
// variables (laid out in order), module variables (addresses), parameters, labels.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ptxvm/decode.h"

namespace pf::ptxvm {

inline bool is64(Type t) { return size_of(t) == 8; }

class Decoder {
 public:
  Decoder(Module& module, const Unit& unit, const Function& entry, Kernel& kernel);

  struct Register {
    Type type;
    uint32_t index;  // word offset or predicate index
  };
  const Register* find_register(const std::string& name) const {
    for (auto it = scopes_.rbegin(); it != scopes_.rend(); ++it) {
      auto r = it->registers.find(name);
      if (r != it->registers.end()) return &r->second;
      if (it->is_function) break;
    }
    return nullptr;
  }
  const Module::Symbol* find_symbol(const std::string& name);
  static constexpr uint64_t kDynamic = ~0ull;  // address of `extern __shared__`

  uint32_t new_register(Type type) {
    uint32_t at = k_.n_words;
    k_.n_words += is64(type) ? 64 : 32;
    return at;
  }
  uint32_t constant(uint64_t value, bool wide) {
    if (!wide) value &= 0xffffffffu;
    auto [it, fresh] = constants_.try_emplace({value, wide}, 0);
    if (fresh) {
      it->second = new_register(wide ? Type::kB64 : Type::kB32);
      if (wide)
        k_.constants64.emplace_back(it->second, value);
      else
        k_.constants32.emplace_back(it->second, static_cast<uint32_t>(value));
    }
    return it->second;
  }
  uint32_t dynamic_base(bool wide) {
    k_.dynamic_shared = true;
    auto& list = wide ? k_.dynamic_base64 : k_.dynamic_base32;
    if (list.empty()) list.push_back(new_register(wide ? Type::kB64 : Type::kB32));
    return list[0];
  }
  Kernel& kernel() { return k_; }
  const Statement* targets(const std::string& name) const {
    for (const Statement& s : function_->body)
      if (s.form == Statement::Form::kTargets && s.opcode == name) return &s;
    return nullptr;
  }
  // The branch target is known when the function's end is reached.
  void fix_target(const std::string& label, int list_index, int ptx_line) {
    fixes_.push_back({label, static_cast<uint32_t>(k_.code.size()), list_index, ptx_line});
  }

 private:
  struct Scope {
    std::map<std::string, Register> registers;
    std::map<std::string, Module::Symbol> symbols;
    bool is_function = false;
  };
  struct Fix {
    std::string label;
    uint32_t instr;
    int list_index;
    int ptx_line;
  };

  const Module::Symbol& place_shared(const Variable& v,
                                     std::map<std::string, Module::Symbol>& into);
  uint64_t place_local(const Variable& v);
  // Appends a function's code; a `ret` inside a callee goes to its end.
  void expand(const Function& f, int depth);
  void one(const Statement& s, int depth);
  void push(Instr in, const Statement& s);
  void instruction(const Statement& s, int depth);
  void call(const Statement& s, int depth);

  Module& module_;
  const Unit& unit_;
  Kernel& k_;
  const Function* function_ = nullptr;
  std::vector<Scope> scopes_;
  std::map<std::string, Module::Symbol> module_shared_;
  std::map<std::pair<uint64_t, bool>, uint32_t> constants_;
  std::map<std::string, uint32_t> labels_;
  std::vector<Fix> fixes_;
};

}  // namespace pf::ptxvm
