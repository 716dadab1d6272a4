// What a selector sees of its instruction: modifiers, operands as register-file offsets, control
// flow.

#include <algorithm>
#include <bit>
#include <cstring>

#include "ptxvm/decoder.h"
#include "ptxvm/memory.h"

namespace pf::ptxvm {

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

namespace {

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

}  // namespace

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
    add_bit_ops(t);
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

}  // namespace pf::ptxvm
