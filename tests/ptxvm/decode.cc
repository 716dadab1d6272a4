// Walks a kernel's statements, with the functions that it calls expanded in place.

#include <algorithm>

#include "ptxvm/decoder.h"

namespace pf::ptxvm {

Decoder::Decoder(Module& module, const Unit& unit, const Function& entry, Kernel& kernel)
    : module_(module), unit_(unit), k_(kernel) {
  k_.name = entry.name;
  k_.locs = unit.locs;
  k_.files = unit.files;
  k_.max_threads = entry.max_threads;
  k_.required_threads = entry.required_threads;
  k_.min_blocks = entry.min_blocks;
  k_.n_words = kSpecials * 32;
  scopes_.emplace_back();
  for (const Variable& p : entry.params) {
    uint32_t bytes = static_cast<uint32_t>(p.count) * static_cast<uint32_t>(size_of(p.type));
    k_.param_bytes = (k_.param_bytes + p.align - 1) / p.align * p.align;
    scopes_.back().symbols[p.name] = {Space::kParam, kParamBase + k_.param_bytes, bytes};
    k_.params.push_back({p.name, bytes, p.align, k_.param_bytes});
    k_.param_bytes += bytes;
  }
  expand(entry, 0);
  k_.counters.resize(k_.code.size());
}

const Module::Symbol* Decoder::find_symbol(const std::string& name) {
  for (auto it = scopes_.rbegin(); it != scopes_.rend(); ++it) {
    auto s = it->symbols.find(name);
    if (s != it->symbols.end()) return &s->second;
    if (it->is_function) break;
  }
  auto s = module_shared_.find(name);
  if (s != module_shared_.end()) return &s->second;
  for (const Variable& v : unit_.variables)
    if (v.name == name && v.space == Space::kShared) return &place_shared(v, module_shared_);
  return module_.symbol(name);
}

const Module::Symbol& Decoder::place_shared(const Variable& v,
                                            std::map<std::string, Module::Symbol>& into) {
  if (v.is_extern || v.count == 0) {
    k_.dynamic_align = std::max(k_.dynamic_align, v.align);
    return into[v.name] = {Space::kShared, kDynamic, 0};
  }
  k_.shared_bytes = (k_.shared_bytes + v.align - 1) / v.align * v.align;
  uint64_t bytes = v.count * static_cast<uint64_t>(size_of(v.type));
  k_.shared_symbols.emplace_back(v.name, k_.shared_bytes);
  const auto& s = into[v.name] = {Space::kShared, kSharedStart + k_.shared_bytes, bytes};
  k_.shared_bytes += static_cast<uint32_t>(bytes);
  return s;
}

uint64_t Decoder::place_local(const Variable& v) {
  k_.local_bytes = (k_.local_bytes + v.align - 1) / v.align * v.align;
  uint64_t at = kLocalBase + k_.local_bytes;
  k_.local_bytes += static_cast<uint32_t>(v.count) * static_cast<uint32_t>(size_of(v.type));
  scopes_.back().symbols[v.name] = {Space::kLocal, at,
                                    v.count * static_cast<uint64_t>(size_of(v.type))};
  return at;
}

void Decoder::expand(const Function& f, int depth) {
  if (depth > 32) throw PtxError("recursion through " + f.name + " is not supported", 0);
  const Function* outer = function_;
  auto outer_labels = std::move(labels_);
  auto outer_fixes = std::move(fixes_);
  labels_.clear();
  fixes_.clear();
  function_ = &f;
  for (const Statement& s : f.body) {
    try {
      one(s, depth);
    } catch (const PtxError&) {
      throw;
    } catch (const std::exception& e) {
      throw PtxError(std::string("malformed number or operand (") + e.what() + ")", s.ptx_line);
    }
  }
  labels_["(end)"] = static_cast<uint32_t>(k_.code.size());
  if (depth == 0) {
    Instr in;
    in.flow = Flow::kExit;
    k_.code.push_back(in);
    // The texts and positions of the implicit end stay empty.
  }
  for (const Fix& fix : fixes_) {
    auto it = labels_.find(fix.label);
    if (it == labels_.end()) throw PtxError("no label " + fix.label, fix.ptx_line);
    if (fix.list_index >= 0)
      k_.lists[static_cast<size_t>(fix.list_index)] = it->second;
    else
      k_.code[fix.instr].target = it->second;
  }
  labels_ = std::move(outer_labels);
  fixes_ = std::move(outer_fixes);
  function_ = outer;
}

void Decoder::one(const Statement& s, int depth) {
  switch (s.form) {
    case Statement::Form::kOpen:
      scopes_.emplace_back();
      break;
    case Statement::Form::kClose:
      scopes_.pop_back();
      break;
    case Statement::Form::kLabel:
      labels_[s.opcode] = static_cast<uint32_t>(k_.code.size());
      break;
    case Statement::Form::kTargets:
      break;
    case Statement::Form::kRegister:
      for (const auto& [name, count] : s.names)
        for (int i = 0; i < std::max(count, 1); ++i) {
          uint32_t index = s.type == Type::kPred ? k_.n_preds++ : new_register(s.type);
          scopes_.back().registers[count < 0 ? name : name + std::to_string(i)] = {s.type, index};
        }
      break;
    case Statement::Form::kVariable:
      if (s.variable.space == Space::kShared)
        place_shared(s.variable, scopes_.back().symbols);
      else
        place_local(s.variable);
      break;
    case Statement::Form::kInstruction:
      instruction(s, depth);
      break;
  }
}

void Decoder::push(Instr in, const Statement& s) {
  in.loc = s.loc >= 0 || k_.code.empty() ? s.loc : k_.code.back().loc;
  in.text = static_cast<int32_t>(k_.texts.size());
  std::string text = s.opcode;
  for (const Operand& o : s.operands) text += " " + (o.number.empty() ? o.name : o.number);
  k_.texts.push_back(text);
  k_.ptx_lines.push_back(s.ptx_line);
  in.guard = kPredTrue * 2;
  if (!s.guard.empty()) {
    const Register* r = find_register(s.guard);
    if (r == nullptr || r->type != Type::kPred)
      throw PtxError("unknown predicate " + s.guard, s.ptx_line);
    in.guard = r->index * 2 + s.guard_negated;
  }
  k_.code.push_back(in);
}

void Decoder::instruction(const Statement& s, int depth) {
  std::string op = s.opcode.substr(0, s.opcode.find('.'));
  if (op == "call") {
    call(s, depth);
    return;
  }
  if (op == "ret" && depth > 0) {
    Instr in;
    in.flow = Flow::kBranch;
    fix_target("(end)", -1, s.ptx_line);
    push(in, s);
    return;
  }
  auto it = selectors().find(op);
  if (it == selectors().end()) throw PtxError("unknown opcode '" + s.opcode + "'", s.ptx_line);
  Builder b(*this, s);
  it->second(b);
  b.finish();
  push(b.in, s);
}

void Decoder::call(const Statement& s, int depth) {
  if (!s.guard.empty()) throw PtxError("a call under a predicate is not supported", s.ptx_line);
  auto argument = [&](const std::string& name) {
    const Module::Symbol* a = find_symbol(name);
    if (a == nullptr) throw PtxError("unknown call argument " + name, s.ptx_line);
    return *a;
  };
  if (s.callee == "vprintf" || s.callee == "__assertfail") {
    Instr in;
    in.fn = s.callee == "vprintf" ? run_printf : run_assertfail;
    in.list = static_cast<uint32_t>(k_.lists.size());
    for (const std::string& a : s.call_arguments)
      k_.lists.push_back(static_cast<uint32_t>(argument(a).address - kLocalBase));
    for (const std::string& a : s.call_results)
      k_.lists.push_back(static_cast<uint32_t>(argument(a).address - kLocalBase));
    push(in, s);
    return;
  }
  const Function* f = nullptr;
  for (const Function& g : unit_.functions)
    if (g.name == s.callee && g.has_body) f = &g;
  if (f == nullptr)
    throw PtxError("call of '" + s.callee + "', which has no body here", s.ptx_line);
  if (f->params.size() != s.call_arguments.size() || f->results.size() != s.call_results.size())
    throw PtxError("call of '" + s.callee + "' with other parameters than it declares", s.ptx_line);
  Scope scope;
  scope.is_function = true;
  for (size_t i = 0; i < f->params.size(); ++i)
    scope.symbols[f->params[i].name] = argument(s.call_arguments[i]);
  for (size_t i = 0; i < f->results.size(); ++i)
    scope.symbols[f->results[i].name] = argument(s.call_results[i]);
  scopes_.push_back(std::move(scope));
  expand(*f, depth + 1);
  scopes_.pop_back();
}

}  // namespace pf::ptxvm
