#include "ptxvm/opcode.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "ptxvm/decode.h"
#include "ptxvm/memory.h"

namespace pf::ptxvm {
namespace {

const char* const kHead = ".version 8.4\n.target sm_90\n.address_size 64\n";

struct Buffer {
  Region* region;
  explicit Buffer(size_t bytes) : region(DeviceMemory::get().allocate(bytes, "")) {}
  ~Buffer() { DeviceMemory::get().release(region->base); }
  Buffer(const Buffer&) = delete;
};

// Launches and adds what ran to executed_opcodes(); `only`: that instruction alone.
bool launch(Module& module, Dim3 grid, Dim3 block, uint64_t out, uint64_t in,
            const std::string& only) {
  void* args[] = {&out, &in};
  bool good = launch_ptx(module, "k", grid, block, 0, args);
  if (!module.is_decoded("k")) return good;
  Kernel& k = module.kernel("k");
  for (size_t i = 0; i < k.code.size(); ++i) {
    if (k.code[i].text < 0 || k.counters[i].warp_steps == 0) continue;
    const std::string& text = k.texts[static_cast<size_t>(k.code[i].text)];
    if (only.empty() || text.rfind(only, 0) == 0)
      executed_opcodes().insert(text.substr(0, text.find_first_of(". ")));
  }
  return good;
}

std::string declarations() {
  return ".reg .pred %p<48>; .reg .b16 %h<48>; .reg .b32 %r<48>; .reg .f32 %f<48>;\n"
         ".reg .b64 %d<48>; .reg .f64 %g<48>; .reg .b64 %out, %in; .reg .b32 %t, %lane;\n"
         "ld.param.u64 %out, [out]; ld.param.u64 %in, [in]; mov.u32 %t, %tid.x;\n"
         "mov.u32 %lane, %laneid;\n";
}
const char* const kEntry = ".visible .entry k(.param .u64 out, .param .u64 in)\n{\n";

std::string name(char form, size_t i) {
  return std::string("%") + (form == 'd' ? "d" : std::string(1, form)) + std::to_string(i + 10);
}

// Text of a kernel that loads the sources, runs the op, and stores the targets as 64-bit words.
std::string text_of(const std::string& signature, const Row& row) {
  size_t equals = signature.find('=');
  std::string targets = signature.substr(0, equals), sources = signature.substr(equals + 1);
  std::string s = std::string(kHead) + kEntry + declarations();
  std::string operands;
  auto add = [&](const std::string& o) { operands += (operands.empty() ? "" : ", ") + o; };
  std::string target = name(targets[0], 20);
  if (targets.size() == 3) target += "|" + name(targets[2], 21);
  add(target);
  for (size_t i = 0; i < sources.size(); ++i) {
    std::string d = "%d" + std::to_string(i), n = name(sources[i], i);
    s += "ld.global.u64 " + d + ", [%in+" + std::to_string(8 * i) + "];\n";
    s += sources[i] == 'h'   ? "cvt.u16.u64 " + n + ", " + d + ";\n"
         : sources[i] == 'r' ? "cvt.u32.u64 " + n + ", " + d + ";\n"
         : sources[i] == 'd' ? "mov.b64 " + n + ", " + d + ";\n"
                             : "setp.ne.u64 " + n + ", " + d + ", 0;\n";
    add(n);
  }
  size_t at = row.op.find('@');
  s += at == std::string::npos ? row.op + " " + operands
                               : row.op.substr(0, at) + operands + row.op.substr(at + 1);
  s += ";\n.reg .b64 %result, %address;\nmul.wide.u32 %address, %t, 16;\n"
       "add.u64 %address, %address, %out;\n";
  for (size_t i = 0; i < targets.size(); i += 2) {
    std::string n = name(targets[i], 20 + i / 2);
    s += targets[i] == 'h'   ? "cvt.u64.u16 %result, " + n + ";\n"
         : targets[i] == 'r' ? "cvt.u64.u32 %result, " + n + ";\n"
         : targets[i] == 'd' ? "mov.b64 %result, " + n + ";\n"
                             : "selp.b64 %result, 1, 0, " + n + ";\n";
    s += "st.global.u64 [%address+" + std::to_string(4 * i) + "], %result;\n";
  }
  return s + "ret;\n}\n";
}

void expect_row(const std::string& signature, const Row& row) {
  std::shared_ptr<Module> module = load_ptx(text_of(signature, row));
  ASSERT_NE(module, nullptr) << row.op;
  Buffer in(8 * row.in.size() + 8), out(32 * 16);
  std::memcpy(in.region->data, row.in.data(), 8 * row.in.size());
  in.region->set_written(0, 8 * row.in.size());
  bool two = signature.find('|') != std::string::npos;
  for (uint32_t n : {32u, 7u}) {
    std::memset(out.region->data, 0xee, 32 * 16);
    bool good = launch(*module, {1, 1, 1}, {n, 1, 1}, out.region->base, in.region->base,
                       row.op.substr(0, row.op.find(' ')));
    for (const Finding& f : take_findings()) ADD_FAILURE() << row.op << ": " << to_text(f);
    if (!good) return;
    for (uint32_t l = 0; l < n; ++l) {
      uint64_t got[2];
      std::memcpy(got, out.region->data + 16 * l, 16);
      ASSERT_EQ(got[0], row.want) << std::hex << row.op << " of " << testing::PrintToString(row.in)
                                  << " in " << std::dec << n << " threads, lane " << l << std::hex
                                  << ": 0x" << got[0] << " instead of 0x" << row.want;
      if (two) {
        ASSERT_EQ(got[1], row.want2) << row.op << ", second target, lane " << l;
      }
    }
  }
}

std::vector<uint32_t> run_body(const Body& b) {
  std::shared_ptr<Module> module =
      load_ptx(std::string(kHead) + b.before + kEntry + declarations() +
               ".shared .align 128 .b8 smem[4096];\n" + b.text + "\nret;\n}\n");
  if (module == nullptr) return {};
  Buffer in(4 * b.in.size()), out(4 * b.out_words);
  std::memcpy(in.region->data, b.in.data(), 4 * b.in.size());
  in.region->set_written(0, 4 * b.in.size());
  launch(*module, b.grid, b.block, out.region->base, in.region->base, "");
  std::vector<uint32_t> words(b.out_words);
  std::memcpy(words.data(), out.region->data, 4 * b.out_words);
  return words;
}

}  // namespace

const char* const kStore =
    "\nmul.wide.u32 %d40, %t, 4; add.u64 %d40, %d40, %out; st.global.b32 [%d40], %r0;\n";

std::set<std::string>& executed_opcodes() {
  static std::set<std::string> s;
  return s;
}

void expect_rows(const std::string& signature, const std::vector<Row>& rows) {
  for (const Row& row : rows) expect_row(signature, row);
}
std::vector<uint32_t> run(const Body& body) {
  std::vector<uint32_t> out = run_body(body);
  for (const Finding& f : take_findings()) ADD_FAILURE() << to_text(f);
  out.resize(body.out_words);
  return out;
}
Finding finding_of(const Body& body) {
  bool printed = std::exchange(settings().print_findings, false);
  run_body(body);
  settings().print_findings = printed;
  std::vector<Finding> f = take_findings();
  EXPECT_EQ(f.size(), 1u);
  return f.size() == 1 ? f[0] : Finding{};
}

}  // namespace pf::ptxvm
