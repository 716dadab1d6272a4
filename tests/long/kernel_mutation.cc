// Truth: a product kernel's own tests. One executed PTX instruction at a time is edited at random
// and the tests run again in a child process: they, or the machine's checks, must notice 95 of 100
// edits that change the kernel.
//
//   kernel_mutation_NAME KERNEL --gtest_filter=TESTS     KERNEL: a piece of the mangled name
//
// An edit that no test notices changes nothing if the assembler makes the same machine code of it
// (Papadakis et al. 2015, "trivial compiler equivalence"): such edits are not counted. Edits that
// are equivalent for a reason beyond the assembler are listed in equivalent_edits.h. All other
// survivors are printed.
//
// PF_MUTANTS sets how many edits are tried (default 40), PF_SEED which ones, PF_MUTATION_JSON where
// the figures go (scripts/ptx_table.py).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "long/equivalent_edits.h"
#include "long/machine_code.h"
#include "long/ptx_edits.h"
#include "ptxvm/programs.h"
#include "ptxvm/ptxvm.h"

namespace pf::ptxvm {
namespace {

constexpr double kLeastKilled = 0.95;
constexpr int kNoPtx = 42;                // exit status of a child
constexpr rlim_t kPatienceSeconds = 600;  // of the CPU: a loaded machine notices nothing

enum class Fate { kKilled, kSurvived, kNoPtx };

// One failure is enough.
class EndAtOnce : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& r) override {
    if (r.failed()) _exit(1);
  }
};

// The tests with this text in place of the kernel's. A child that hangs or dies has noticed.
Fate fate_of(const std::string& text, const std::string& kernel) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    dup2(null, 2);
    const rlimit patience{kPatienceSeconds, kPatienceSeconds};
    setrlimit(RLIMIT_CPU, &patience);
    std::shared_ptr<Module> module = load_ptx(text);
    if (module == nullptr) _exit(kNoPtx);
    replace_ptx_with(kernel, std::move(module));
    testing::UnitTest::GetInstance()->listeners().Append(new EndAtOnce);
    _exit(RUN_ALL_TESTS() == 0 ? 0 : 1);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) {
    std::perror("kernel_mutation");
    std::exit(2);
  }
  if (!WIFEXITED(status)) return Fate::kKilled;
  return WEXITSTATUS(status) == 0        ? Fate::kSurvived
         : WEXITSTATUS(status) == kNoPtx ? Fate::kNoPtx
                                         : Fate::kKilled;
}

struct Counts {
  uint32_t killed = 0, survived = 0, same_code = 0, listed = 0;
  uint32_t tried() const { return killed + survived + same_code + listed; }
  uint32_t changing() const { return killed + survived; }
  double share() const { return changing() == 0 ? 0 : static_cast<double>(killed) / changing(); }
};

// What becomes of an edit that no test noticed.
void weigh(const std::vector<std::string>& lines, const Edit& e, const std::string& kernel,
           MachineCode& code, Counts* n) {
  if (code.same(lines, e)) {
    ++n->same_code;
    return;
  }
  const char* why = why_equivalent(kernel, lines, e);
  ++(why != nullptr ? n->listed : n->survived);
  std::printf("  %s PTX %zu: %s\n        -> %s\n", why != nullptr ? "equivalent" : "survivor",
              e.line + 1, lines[e.line].c_str(), e.text.empty() ? "(gone)" : e.text.c_str());
  if (why != nullptr) std::printf("        %s\n", why);
}

// That the assembler is asked right: an instruction twice is the instruction once.
bool sees_what_is_said_twice(MachineCode& code, const std::vector<std::string>& lines,
                             const std::vector<int>& executed) {
  for (int n : executed) {
    const std::string& line = lines[static_cast<size_t>(n) - 1];
    if (line.find("mov.u32") != line.npos)
      return code.same(lines, {static_cast<size_t>(n) - 1, line + line});
  }
  return false;
}

int run(const std::string& kernel) {
  const std::string original = ptx_with(kernel);
  // None of these kernels relies on several threads that store the same value.
  settings().same_value_writes_allowed = false;
  clear_measures();
  if (RUN_ALL_TESTS() != 0) return 2;
  const std::vector<std::string> lines = lines_of(original);
  const std::vector<Edit> all = shuffled_edits(lines, executed_ptx_lines(kernel));
  settings().max_steps = 20 * measure(kernel).warp_steps;

  const uint32_t wanted = number_from("PF_MUTANTS", 40);
  MachineCode code;
  if (!sees_what_is_said_twice(code, lines, executed_ptx_lines(kernel))) {
    std::fprintf(stderr, "kernel_mutation: the assembler (" PF_PTXAS ") does not answer\n");
    return 2;
  }
  Counts n;
  for (size_t i = 0; i < all.size() && n.tried() < wanted; ++i) {
    switch (fate_of(edited(lines, all[i]), kernel)) {
      case Fate::kNoPtx:
        break;
      case Fate::kKilled:
        ++n.killed;
        break;
      case Fate::kSurvived:
        weigh(lines, all[i], kernel, code, &n);
        break;
    }
  }
  std::printf(
      "%s: %zu edits possible, %u tried, %u of them the same machine code, %u listed as "
      "equivalent; of %u others %.1f %% noticed\n",
      kernel.c_str(), all.size(), n.tried(), n.same_code, n.listed, n.changing(), 100 * n.share());
  if (const char* path = std::getenv("PF_MUTATION_JSON"))
    std::ofstream(path) << "{\"kernel\": \"" << kernel << "\", \"edits\": " << n.changing()
                        << ", \"equivalent\": " << n.same_code + n.listed
                        << ", \"noticed\": " << n.share() << "}\n";
  const double allowed = std::max(1.0, (1 - kLeastKilled) * n.changing());  // one of a few
  return n.survived <= allowed ? 0 : 1;
}

}  // namespace
}  // namespace pf::ptxvm

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "kernel_mutation: KERNEL [--gtest_filter=TESTS]\n");
    return 2;
  }
  return pf::ptxvm::run(argv[1]);
}
