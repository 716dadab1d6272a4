// The decoder. Names are resolved here once: registers (scoped, per expansion), shared and local
// variables (laid out in order), module variables (addresses), parameters, labels.

#include "ptxvm/decode.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "ptxvm/memory.h"
#include "ptxvm/report.h"

namespace pf::ptxvm {
namespace {

bool is64(Type t) { return size_of(t) == 8; }

const std::map<std::string, Special>& special_registers() {
  static const std::map<std::string, Special> kTable = {{"%tid.x", kTidX},
                                                        {"%tid.y", kTidY},
                                                        {"%tid.z", kTidZ},
                                                        {"%ntid.x", kNtidX},
                                                        {"%ntid.y", kNtidY},
                                                        {"%ntid.z", kNtidZ},
                                                        {"%ctaid.x", kCtaidX},
                                                        {"%ctaid.y", kCtaidY},
                                                        {"%ctaid.z", kCtaidZ},
                                                        {"%nctaid.x", kNctaidX},
                                                        {"%nctaid.y", kNctaidY},
                                                        {"%nctaid.z", kNctaidZ},
                                                        {"%laneid", kLaneid},
                                                        {"%warpid", kWarpid},
                                                        {"%nwarpid", kNwarpid},
                                                        {"%lanemask_eq", kLanemaskEq},
                                                        {"%lanemask_lt", kLanemaskLt},
                                                        {"%lanemask_le", kLanemaskLe},
                                                        {"%lanemask_gt", kLanemaskGt},
                                                        {"%lanemask_ge", kLanemaskGe},
                                                        {"%smid", kSmid},
                                                        {"%nsmid", kNsmid},
                                                        {"%clock", kClock},
                                                        {"%clock_hi", kGridid},
                                                        {"%gridid", kGridid},
                                                        {"%dynamic_smem_size", kDynamicSmem},
                                                        {"%total_smem_size", kTotalSmem}};
  return kTable;
}

// The bits of a literal in a type: 0f and 0d forms, decimal floats, integers with C suffixes.
uint64_t literal(const std::string& text, Type type) {
  bool minus = text[0] == '-';
  std::string t = minus ? text.substr(1) : text;
  if (t.size() > 2 && t[0] == '0' && std::strchr("fFdD", t[1])) {
    uint64_t bits = std::stoull(t.substr(2), nullptr, 16);
    bool is_double = t[1] == 'd' || t[1] == 'D';
    double v =
        is_double ? std::bit_cast<double>(bits) : std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (minus) v = -v;
    if (is64(type)) return is_double && !minus ? bits : std::bit_cast<uint64_t>(v);
    return is_double || minus ? std::bit_cast<uint32_t>(static_cast<float>(v)) : bits;
  }
  if (t.find('.') != std::string::npos) {
    double v = std::stod(t) * (minus ? -1 : 1);
    return is64(type) ? std::bit_cast<uint64_t>(v) : std::bit_cast<uint32_t>(static_cast<float>(v));
  }
  uint64_t v = std::stoull(t, nullptr, 0);
  return minus ? 0 - v : v;
}

}  // namespace

class Decoder {
 public:
  Decoder(Module& module, const Unit& unit, const Function& entry, Kernel& kernel)
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
  const Module::Symbol* find_symbol(const std::string& name) {
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

  uint64_t place_local(const Variable& v) {
    k_.local_bytes = (k_.local_bytes + v.align - 1) / v.align * v.align;
    uint64_t at = kLocalBase + k_.local_bytes;
    k_.local_bytes += static_cast<uint32_t>(v.count) * static_cast<uint32_t>(size_of(v.type));
    scopes_.back().symbols[v.name] = {Space::kLocal, at,
                                      v.count * static_cast<uint64_t>(size_of(v.type))};
    return at;
  }

  // Appends a function's code; a `ret` inside a callee goes to its end.
  void expand(const Function& f, int depth) {
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

  void one(const Statement& s, int depth) {
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

  void push(Instr in, const Statement& s) {
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

  void instruction(const Statement& s, int depth) {
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

  void call(const Statement& s, int depth) {
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
      throw PtxError("call of '" + s.callee + "' with other parameters than it declares",
                     s.ptx_line);
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

// --- Builder ---

Builder::Builder(Decoder& decoder, const Statement& statement)
    : decoder_(decoder), statement_(statement) {
  const std::string& op = statement.opcode;
  for (size_t p = op.find('.'); p != std::string::npos;) {
    size_t q = op.find('.', p + 1);
    modifiers_.push_back(op.substr(p + 1, q == std::string::npos ? q : q - p - 1));
    p = q;
  }
  for (const char* name : {"L2::64B", "L2::128B", "L2::256B", "L1::no_allocate", "L1::evict_last",
                           "L1::evict_first", "level::eviction_priority"})
    take(name);
}

void Builder::fail(const std::string& what) const {
  throw PtxError(what + " in '" + statement_.opcode + "'", statement_.ptx_line);
}
void Builder::finish() {
  if (!modifiers_.empty()) fail("unsupported modifier ." + modifiers_[0]);
}
bool Builder::take(const char* modifier) {
  auto it = std::find(modifiers_.begin(), modifiers_.end(), modifier);
  if (it == modifiers_.end()) return false;
  modifiers_.erase(it);
  return true;
}
int Builder::take_one(std::initializer_list<const char*> modifiers) {
  int i = 0;
  for (const char* m : modifiers) {
    if (take(m)) return i;
    ++i;
  }
  return -1;
}
Type Builder::type_or(Type otherwise) {
  for (auto it = modifiers_.begin(); it != modifiers_.end(); ++it) {
    Type t = type_named(*it);
    if (t == Type::kNone) continue;
    modifiers_.erase(it);
    return t;
  }
  return otherwise;
}
Type Builder::type() {
  Type t = type_or(Type::kNone);
  if (t == Type::kNone) fail("no type");
  return t;
}
const Operand& Builder::operand(size_t i) const {
  if (i >= statement_.operands.size()) fail("too few operands");
  return statement_.operands[i];
}
uint32_t Builder::constant(uint64_t value, Type type) {
  return decoder_.constant(value, is64(type));
}

uint32_t Builder::register_of(const Operand& o, Type type, bool is_target) {
  if (o.form == Operand::Form::kSink) return decoder_.new_register(Type::kB64);
  if (o.form == Operand::Form::kNumber && !is_target)
    return constant(literal(o.number, type), type);
  if (o.form != Operand::Form::kName) fail("an operand of an unexpected form");
  if (const auto* r = decoder_.find_register(o.name)) {
    if (r->type == Type::kPred) fail("predicate " + o.name + " where a register belongs");
    if (is64(r->type) != is64(type))
      fail("register " + o.name + " has another width than the type");
    return r->index;
  }
  if (is_target) fail("unknown register " + o.name);
  auto special = special_registers().find(o.name);
  if (special != special_registers().end()) return special->second * 32;
  if (o.name == "%clock64" || o.name == "%globaltimer") return constant(0, Type::kB64);
  if (o.name == "WARP_SZ") return constant(32, type);
  const Module::Symbol* s = decoder_.find_symbol(o.name);
  if (s == nullptr) fail("unknown name " + o.name);
  if (s->address == Decoder::kDynamic) return decoder_.dynamic_base(is64(type));
  uint64_t address = s->space == Space::kLocal ? s->address - kLocalBase : s->address;
  return constant(address + static_cast<uint64_t>(o.disp), type);
}
uint32_t Builder::source(size_t i, Type type) { return register_of(operand(i), type, false); }
uint32_t Builder::target(size_t i, Type type) { return register_of(operand(i), type, true); }

bool Builder::is_predicate(size_t i) {
  if (i >= n_operands() || operand(i).form != Operand::Form::kName) return false;
  const auto* r = decoder_.find_register(operand(i).name);
  return r != nullptr && r->type == Type::kPred;
}
bool Builder::is_wide(const Operand& o, Type type) {
  const auto* r = o.form == Operand::Form::kName ? decoder_.find_register(o.name) : nullptr;
  return is64(r != nullptr ? r->type : type);
}
uint32_t Builder::predicate(size_t i) {
  const Operand& o = operand(i);
  if (o.form == Operand::Form::kSink) return kPredSink * 2;
  if (o.form == Operand::Form::kNumber) return kPredTrue * 2 + (literal(o.number, Type::kB32) == 0);
  const auto* r = decoder_.find_register(o.name);
  if (r == nullptr || r->type != Type::kPred) fail("unknown predicate " + o.name);
  return r->index * 2 + o.negated;
}
uint32_t Builder::piped_predicate(size_t i) {
  const std::string& name = operand(i).pipe;
  if (name.empty() || name == "_") return kPredSink * 2;
  const auto* r = decoder_.find_register(name);
  if (r == nullptr || r->type != Type::kPred) fail("unknown predicate " + name);
  return r->index * 2;
}

uint32_t Builder::address(size_t i, int64_t* disp) {
  const Operand& o = operand(i);
  if (o.form != Operand::Form::kAddress) fail("operand " + std::to_string(i) + " is no address");
  *disp = o.disp;
  in.address64 = true;
  if (o.name.empty()) return constant(0, Type::kB64);
  if (const auto* r = decoder_.find_register(o.name)) {
    if (r->type == Type::kPred) fail("predicate " + o.name + " as an address");
    in.address64 = is64(r->type);
    return r->index;
  }
  const Module::Symbol* s = decoder_.find_symbol(o.name);
  if (s == nullptr) fail("unknown name " + o.name);
  if (s->address == Decoder::kDynamic) return decoder_.dynamic_base(true);
  return constant(s->address, Type::kB64);
}

uint32_t Builder::vector(size_t i, Type type, bool is_target, uint8_t* n) {
  const Operand& o = operand(i);
  std::vector<uint32_t> regs;
  if (o.form == Operand::Form::kVector)
    for (const Operand& p : o.parts) regs.push_back(register_of(p, type, is_target));
  else
    regs.push_back(register_of(o, type, is_target));
  Kernel& k = decoder_.kernel();
  auto at = static_cast<uint32_t>(k.lists.size());
  k.lists.insert(k.lists.end(), regs.begin(), regs.end());
  *n = static_cast<uint8_t>(regs.size());
  return at;
}

Space Builder::space() {
  int s = take_one({"global", "shared", "shared::cta", "local", "param", "param::entry",
                    "param::func", "const"});
  static const Space kSpaces[] = {Space::kGeneric, Space::kGlobal, Space::kShared,
                                  Space::kShared,  Space::kLocal,  Space::kParam,
                                  Space::kParam,   Space::kParam,  Space::kConst};
  return kSpaces[s + 1];
}

// --- control flow, which needs the decoder's labels ---

namespace {

void select_exit(Builder& b) {
  b.take("uni");
  b.in.flow = Flow::kExit;
}

}  // namespace

void select_branch(Builder& b, Decoder& d, const Statement& s) {
  b.take("uni");
  b.in.flow = Flow::kBranch;
  d.fix_target(b.operand(0).name, -1, s.ptx_line);
}

void select_indexed_branch(Builder& b, Decoder& d, const Statement& s) {
  b.take("idx");
  b.take("uni");
  const Statement* t = d.targets(b.operand(1).name);
  if (t == nullptr) b.fail("unknown target list");
  b.in.flow = Flow::kBranchIndexed;
  b.in.r[0] = b.source(0, Type::kU32);
  b.in.list = static_cast<uint32_t>(d.kernel().lists.size());
  b.in.size = static_cast<uint32_t>(t->targets.size());
  for (const std::string& name : t->targets) {
    d.fix_target(name, static_cast<int>(d.kernel().lists.size()), s.ptx_line);
    d.kernel().lists.push_back(0);
  }
}

void Builder::select_flow() {
  if (statement_.opcode.rfind("brx", 0) == 0)
    select_indexed_branch(*this, decoder_, statement_);
  else
    select_branch(*this, decoder_, statement_);
}

const SelectorTable& selectors() {
  static const SelectorTable kTable = [] {
    SelectorTable t;
    add_integer_ops(t);
    add_compare_ops(t);
    add_float_ops(t);
    add_convert_ops(t);
    add_memory_ops(t);
    add_warp_ops(t);
    add_matrix_ops(t);
    t["ret"] = t["exit"] = select_exit;
    t["bra"] = t["brx"] = [](Builder& b) { b.select_flow(); };
    return t;
  }();
  return kTable;
}

// --- Module ---

Module::Module(std::string text) : unit_(parse(text)) { make_variables(); }

Module::~Module() {
  forget_module(*this);
  for (const auto& [name, s] : symbols_) DeviceMemory::get().release(s.address);
}

void Module::make_variables() {
  for (const Variable& v : unit_.variables) {
    if (v.space == Space::kShared || v.is_extern) continue;
    auto unit = static_cast<uint64_t>(size_of(v.type));
    uint64_t bytes = std::max<uint64_t>(v.count, 1) * unit;
    Region* r = DeviceMemory::get().allocate(
        bytes, (v.space == Space::kConst ? "__constant__ " : "__device__ ") + v.name);
    check(r != nullptr, "ptxvm: no device memory left for a module's variables");
    r->read_only = v.space == Space::kConst;
    std::memset(r->data, 0, bytes);
    r->set_written(0, bytes);
    symbols_[v.name] = {v.space, r->base, bytes};
  }
  for (const Variable& v : unit_.variables) {
    if (v.init.empty() || v.space == Space::kShared) continue;
    Region* r = DeviceMemory::get().find(symbols_.at(v.name).address);
    auto unit = static_cast<uint64_t>(size_of(v.type));
    for (size_t i = 0; i < v.init.size() && i * unit < r->bytes; ++i) {
      auto s = symbols_.find(v.init[i]);
      uint64_t bits = s != symbols_.end() ? s->second.address : literal(v.init[i], v.type);
      std::memcpy(r->data + i * unit, &bits, unit);
    }
  }
}

Kernel& Module::kernel(const std::string& name) {
  auto it = kernels_.find(name);
  if (it == kernels_.end()) {
    for (const Function& f : unit_.functions) {
      if (f.name != name || !f.is_entry || !f.has_body) continue;
      auto kernel = std::make_unique<Kernel>();
      Decoder(*this, unit_, f, *kernel);
      it = kernels_.emplace(name, std::move(kernel)).first;
    }
    if (it == kernels_.end()) throw PtxError("no kernel " + name, 0);
  }
  return *it->second;
}

const Module::Symbol* Module::symbol(const std::string& name) const {
  auto it = symbols_.find(name);
  return it == symbols_.end() ? nullptr : &it->second;
}

bool Module::owns(const Kernel* kernel) const {
  for (const auto& [name, k] : kernels_)
    if (k.get() == kernel) return true;
  return false;
}

std::vector<std::string> Module::kernel_names() const {
  std::vector<std::string> out;
  for (const Function& f : unit_.functions)
    if (f.is_entry && f.has_body) out.push_back(f.name);
  return out;
}

}  // namespace pf::ptxvm
