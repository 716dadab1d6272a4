#pragma once

#include <regex>
#include <string>
#include <vector>

#include "long/ptx_edits.h"

namespace pf::ptxvm {

// Edits that change the machine code and not what the kernel does, each with its argument. `from`
// is the instruction, `to` what it became (empty: gone), `beside` the one before or behind it where
// that matters; regular expressions, of the kernels with `kernel` in their name.
struct EquivalentEdit {
  const char *kernel, *from, *to, *beside, *why;
};
inline constexpr EquivalentEdit kEquivalentEdits[] = {
    {"rms_norm_kernel", R"(setp\.lt\.u32 %p\d+, %r\d+, 3072;)", R"(.*setp\.le\.u32.*)", "",
     "E - 1 - e is compared; E and e are multiples of 4, so it is never 3072"},
    {"rope_kv_write_kernel", R"(add\.s32 %r\d+, %r\d+, 1;)", R"(.*, 2;)",
     R"(setp\.gt\.u32 %p\d+, %r\d+, 2;)",
     "i == 0 as n + 1 <= 2 of n = 0, 4, 8, ...: n + 2 says the same"},
    {"rope_kv_write_kernel", R"(setp\.gt\.u32 %p\d+, %r\d+, 2;)", R"(.*(ge\.u32|, 4;).*)", "",
     "i == 0 as n + 1 <= 2 of n = 0, 4, 8, ...: 1 and 4 say the same"},
    {"rope_kv_write_kernel", R"(setp\.gt\.s32 %p\d+, %r\d+, 1;)", R"(.*ge\.s32.*)", "",
     "one exchange more, at distance 0: the largest of a value and itself"},
    {"rope_kv_write_kernel", R"(shr\.u32 %r\d+, %r\d+, 31;)", R"(.*shl\.b32.*)", R"(add\.s32)",
     "the sign of n % D on its way to half of it, a multiple of 4: its last bit is 0 too"},
    {"rope_kv_write_kernel", R"(setp\.lt\.s32 %p\d+, %r\d+, 8;)", R"(.*, 16;)", "",
     "D of int8 is 64 or 128"},
    {"", R"(add\.f32 %f\d+, %f\d+, 0f00000000;)", R"(.*sub\.f32.*)", "",
     "they differ for -0 alone, which no sum is that began with +0"},
    {"gemm_int4_cu", R"(mov\.u32 %r\d+, 0;)", R"(.*, 1;)", R"(setp\.gt\.s32 %p\d+, %r\d+, 0;)",
     "the stage that a slice without steps would load into next"},
    {"attention_kernel", R"(or\.pred)", R"(.*and\.pred.*)",
     R"(setp\.neu\.f32 .*, 0f(FF800000|00000000);)",
     "a state of no keys has sum 0 and maximum -infinity, any other one neither"},
};

// The instruction before (step -1) or behind (+1) a line; empty where none is.
inline std::string beside(const std::vector<std::string>& lines, size_t at, int step) {
  for (size_t i = at + static_cast<size_t>(step); i < lines.size(); i += static_cast<size_t>(step))
    if (lines[i].find(';') != std::string::npos && lines[i].find(".loc") == std::string::npos)
      return lines[i];
  return "";
}

// x / 2^n of signed numbers adds 2^n - 1 where x is negative: shr.s32 s, x, 31; shr.u32 c, s, 32 -
// n; add.s32 y, x, c (for n = 1 without the first). No number that these kernels divide is.
inline bool corrects_a_signed_division(const std::vector<std::string>& lines, const Edit& e) {
  static const std::regex kSign(R"(shr\.s32 %r\d+, %r\d+, 31;)"),
      kCorrection(R"(shr\.u32 (%r\d+), %r\d+, (2[4-9]|3[01]);)"),
      kSum(R"(add\.s32 %r\d+, %r\d+, (%r\d+);)");
  const std::string &line = lines[e.line], before = beside(lines, e.line, -1),
                    behind = beside(lines, e.line, 1);
  std::smatch c, s;
  if (std::regex_search(line, c, kCorrection)) {
    const bool of_sign = std::regex_search(before, kSign);
    const bool of_itself =
        c[2] == "31" && std::regex_search(behind, s, kSum) && s[1] == c[1];  // n = 1
    const bool shifts_more = e.text.find("shr.u32") != e.text.npos;          // 0 as before
    const bool to_the_left = e.text.find("shl.b32") != e.text.npos;  // 0, if what is shifted is 0
    return (shifts_more && (of_sign || of_itself)) || (to_the_left && of_sign);
  }
  return std::regex_search(line, s, kSum) && e.text.find("sub.s32") != e.text.npos &&
         std::regex_search(before, c, kCorrection) && c[1] == s[1];
}

// Null where the edit is not known to be equivalent.
inline const char* why_equivalent(const std::string& kernel, const std::vector<std::string>& lines,
                                  const Edit& e) {
  if (corrects_a_signed_division(lines, e))
    return "the correction of a signed division, of numbers that are never negative";
  for (const EquivalentEdit& k : kEquivalentEdits)
    if (kernel.find(k.kernel) != std::string::npos &&
        std::regex_search(lines[e.line], std::regex(k.from)) &&
        std::regex_match(e.text, std::regex(k.to)) &&
        (*k.beside == '\0' || std::regex_search(beside(lines, e.line, 1), std::regex(k.beside)) ||
         std::regex_search(beside(lines, e.line, -1), std::regex(k.beside))))
      return k.why;
  return nullptr;
}

}  // namespace pf::ptxvm
