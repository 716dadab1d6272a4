#pragma once
// Random edits of PTX text for the mutation runs. Edits that cannot change what any program does
// are not made: the arguments stand at each kind.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace pf::ptxvm {

// Edits of one line.
//
// Left out: mul.wide.s32 to .u32 (they differ for negative indices alone), ld.u16 to .s16 (a 16-bit
// register takes the same bits), shfl.bfly to .down (a sum that only lane 0 looks at is the same
// tree), xor to or (the compiler writes xor for the sum of bits that do not overlap).
inline void swap_opcodes(const std::string& line, std::set<std::string>& out) {
  static const std::pair<const char*, const char*> kSwaps[] = {{"add.s32", "sub.s32"},
                                                               {"sub.s32", "add.s32"},
                                                               {"add.s64", "sub.s64"},
                                                               {"add.f32", "sub.f32"},
                                                               {"sub.f32", "add.f32"},
                                                               {"mul.f32", "add.f32"},
                                                               {"mul.lo.s32", "add.s32"},
                                                               {"max.f32", "min.f32"},
                                                               {"setp.lt", "setp.le"},
                                                               {"setp.le", "setp.lt"},
                                                               {"setp.ge", "setp.gt"},
                                                               {"setp.gt", "setp.ge"},
                                                               {"setp.ne", "setp.eq"},
                                                               {"setp.eq", "setp.ne"},
                                                               {"and.b32", "or.b32"},
                                                               {"or.b32", "and.b32"},
                                                               {"xor.b32", "and.b32"},
                                                               {"shl.b32", "shr.u32"},
                                                               {"shr.u32", "shl.b32"},
                                                               {"shr.s32", "shl.b32"},
                                                               {"and.pred", "or.pred"},
                                                               {"or.pred", "and.pred"},
                                                               {".trans.shared", ".shared"},
                                                               {"shfl.sync.bfly", "shfl.sync.up"},
                                                               {"shfl.sync.down", "shfl.sync.up"},
                                                               {"wait_group 0", "wait_group 1"},
                                                               {"wait_group 1", "wait_group 2"},
                                                               {"cvt.rn.f16x2", "cvt.rz.f16x2"}};
  for (auto [from, to] : kSwaps) {
    size_t at = line.find(from);
    if (at != std::string::npos) out.insert(std::string(line).replace(at, strlen(from), to));
  }
}
// A number becomes the next one that has its zeros at the end: thresholds, strides and masks count
// in the units of a tile or a pack, and what is less than a unit is lost in the alignment.
inline void change_numbers(const std::string& line, std::set<std::string>& out) {
  static const std::regex kNumber(R"(([,+] ?)(\d+)([;,\]]))");
  for (auto it = std::sregex_iterator(line.begin(), line.end(), kNumber);
       it != std::sregex_iterator(); ++it) {
    unsigned long v = std::stoul((*it)[2]);
    unsigned long other = (*it)[3] == "]" ? v + 4 : v == 0 ? 1 : v + (v & (0 - v));
    out.insert(it->prefix().str() + (*it)[1].str() + std::to_string(other) + (*it)[3].str() +
               std::string(it->suffix().first, it->suffix().second));
  }
}
inline void exchange_operands(const std::string& line, std::set<std::string>& out) {
  static const std::regex kLastTwo(R"((%\w+), (%\w+);$)"), kGuard(R"(@(!?)(%p\d+))"),
      kFour(R"(\{(%r\d+), ?(%r\d+), ?(%r\d+), ?(%r\d+)\}, ?\{%r\d+, ?%r)");
  std::smatch m;
  const bool equality = line.find(".eq.") != line.npos || line.find(".ne.") != line.npos;
  bool matters = line.find("sub.") != line.npos || (line.find("setp.") != line.npos && !equality) ||
                 line.find("shl.") != line.npos || line.find("selp.") != line.npos ||
                 line.find("st.") != line.npos || line.find("fma.") != line.npos;
  if (matters && std::regex_search(line, m, kLastTwo) && m[1] != m[2])
    out.insert(m.prefix().str() + m[2].str() + ", " + m[1].str() + ";");
  if (std::regex_search(line, m, kGuard))
    out.insert(m.prefix().str() + "@" + (m[1].length() ? "" : "!") + m[2].str() + m.suffix().str());
  if (line.find("mma.") != line.npos && std::regex_search(line, m, kFour))
    out.insert(
        std::string(line).replace(static_cast<size_t>(m.position(1)),
                                  static_cast<size_t>(m.position(2) + m.length(2) - m.position(1)),
                                  m[2].str() + "," + m[1].str()));
}
inline std::set<std::string> edits(const std::string& line) {
  std::set<std::string> out;
  swap_opcodes(line, out);
  change_numbers(line, out);
  exchange_operands(line, out);
  if (line.find("call") == line.npos && line.find("ret;") == line.npos &&
      line.find('{') == line.npos)
    out.insert("");  // the instruction is gone
  out.erase(line);
  return out;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string l; std::getline(in, l);) lines.push_back(l);
  return lines;
}
inline std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& l : lines) text += l + "\n";
  return text;
}
inline uint32_t number_from(const char* name, uint32_t otherwise) {
  const char* v = std::getenv(name);
  return v == nullptr ? otherwise : static_cast<uint32_t>(std::stoul(v));
}

// All edits of these lines (from 1), in an order that PF_SEED chooses.
struct Edit {
  size_t line;  // from 0
  std::string text;
};
inline std::vector<Edit> shuffled_edits(const std::vector<std::string>& lines,
                                        const std::vector<int>& executed) {
  std::vector<Edit> all;
  for (int n : executed)
    for (const std::string& text : edits(lines[static_cast<size_t>(n) - 1]))
      all.push_back({static_cast<size_t>(n) - 1, text});
  std::mt19937 random(number_from("PF_SEED", 5));
  std::shuffle(all.begin(), all.end(), random);
  return all;
}
inline std::string edited(std::vector<std::string> lines, const Edit& e) {
  lines[e.line] = e.text;
  return joined(lines);
}

}  // namespace pf::ptxvm
