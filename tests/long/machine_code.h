#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "long/ptx_edits.h"

namespace pf::ptxvm {

// Asks the assembler whether an edit makes other machine code of its kernel. Where there is no
// assembler (PF_PTXAS), every edit does.
class MachineCode {
 public:
  MachineCode() : folder_(folder()) {}
  MachineCode(const MachineCode&) = delete;
  ~MachineCode() {
    for (const char* file : {"/k.ptx", "/k.cubin"}) std::remove((folder_ + file).c_str());
    rmdir(folder_.c_str());
  }

  bool same(const std::vector<std::string>& lines, const Edit& e) {
    const std::string entry = entry_of(lines, e.line);
    if (entry.empty()) return false;
    auto it = original_.find(entry);
    if (it == original_.end()) it = original_.emplace(entry, assembled(joined(lines), entry)).first;
    return !it->second.empty() && assembled(edited(lines, e), entry) == it->second;
  }

 private:
  static std::string folder() {
    const char* where = std::getenv("TMPDIR");
    std::string name = std::string(where != nullptr ? where : "/tmp") + "/pf_mutation_XXXXXX";
    return mkdtemp(name.data()) == nullptr ? "." : name;
  }
  // The kernel around a line.
  static std::string entry_of(const std::vector<std::string>& lines, size_t at) {
    for (size_t i = at + 1; i-- > 0;) {
      const size_t p = lines[i].find(".entry ");
      if (p != std::string::npos) return lines[i].substr(p + 7, lines[i].find('(') - p - 7);
    }
    return "";
  }
  // The code is beside a table of where each instruction stands in the text: not what is asked.
  static std::string without_positions(const std::string& text) {
    std::string out;
    bool in_section = false;  // of debug data
    for (const std::string& line : lines_of(text)) {
      in_section |= line.find(".section") != line.npos;
      if (!in_section && line.find(".loc") == line.npos) out += line + "\n";
      if (line.find('}') != line.npos) in_section = false;
    }
    return out;
  }
  // Empty where it is refused.
  std::string assembled(const std::string& text, const std::string& entry) const {
    const std::string ptx = folder_ + "/k.ptx", cubin = folder_ + "/k.cubin";
    std::remove(cubin.c_str());
    std::ofstream(ptx) << without_positions(text);
    const std::string command = std::string("'" PF_PTXAS "' -arch=sm_80 -O3 --entry '") + entry +
                                "' -o '" + cubin + "' '" + ptx + "' 2>/dev/null";
    if (std::system(command.c_str()) != 0) return "";
    std::ostringstream out;
    out << std::ifstream(cubin, std::ios::binary).rdbuf();
    return out.str();
  }

  const std::string folder_;
  std::map<std::string, std::string> original_;  // by entry
};

}  // namespace pf::ptxvm
