// Truth: target.h. Input i is made from the corpus by i alone, so a fault that is found is found
// again: PF_FUZZ_FIRST=i PF_FUZZ_RUNS=1, and PF_FUZZ_SAVE=FILE keeps the input for the corpus.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <vector>

#include "fuzz/target.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1  // as GCC says it
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
// A complaint ends in SIGABRT, where the number of the input is said.
extern "C" const char* __asan_default_options() {
  return "abort_on_error=1:max_allocation_size_mb=1024";
}
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }
#else
constexpr bool kSanitized = false;
#endif

namespace pf::fuzz {
namespace {

constexpr unsigned kSlow_s = 20;  // for one input of a few KB
constexpr size_t kMostBytes = 16 << 10;

std::atomic<int64_t> current{-1};

void say_which(int signal_number) {
  char line[128];
  int n = std::snprintf(line, sizeof(line), "\nfuzz: signal %d at input PF_FUZZ_FIRST=%lld\n",
                        signal_number, static_cast<long long>(current.load()));
  if (write(STDERR_FILENO, line, static_cast<size_t>(n)) > 0) signal(signal_number, SIG_DFL);
  raise(signal_number);
}

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoll(text) : otherwise;
}

std::string corpus_folder() { return std::string("tests/fuzz/corpus/") + target.name; }

// By name.
std::map<std::string, std::string> read_corpus() {
  std::map<std::string, std::string> corpus;
  for (const auto& entry : std::filesystem::directory_iterator(corpus_folder())) {
    std::ifstream in(entry.path(), std::ios::binary);
    corpus[entry.path().filename().string()] = {std::istreambuf_iterator<char>(in), {}};
  }
  return corpus;
}

std::vector<std::string> texts_of(const std::map<std::string, std::string>& corpus) {
  std::vector<std::string> texts;
  for (const auto& [name, text] : corpus) texts.push_back(text);
  return texts;
}

// Changes of one text; everything is drawn from `random`.
class Mutator {
 public:
  Mutator(const std::vector<std::string>& corpus, uint64_t number)
      : corpus_(corpus), random_(number) {}

  std::string make() {
    text_ = corpus_[below(corpus_.size())];
    for (size_t n = 1 + below(1 + below(8)); n > 0; --n) change();
    text_.resize(std::min(text_.size(), kMostBytes));
    return text_;
  }

 private:
  size_t below(size_t n) { return n == 0 ? 0 : random_() % n; }
  size_t place() { return below(text_.size() + 1); }

  void change() {
    switch (below(8)) {
      case 0:
        if (!text_.empty()) text_[below(text_.size())] ^= static_cast<char>(1 << below(8));
        return;
      case 1:
        if (!text_.empty()) text_[below(text_.size())] = static_cast<char>(below(256));
        return;
      case 2:
        text_.erase(place(), 1 + below(1 + below(64)));
        return;
      case 3:
        text_.insert(place(), piece(text_));
        return;
      case 4:
        text_.insert(place(), piece(corpus_[below(corpus_.size())]));
        return;
      case 5:
        put_number();
        return;
      case 6:
        put_word();
        return;
      default:
        text_.resize(place());
    }
  }

  std::string piece(const std::string& of) {
    size_t at = below(of.size() + 1);
    return of.substr(at, 1 + below(1 + below(128)));
  }

  // Over what stands there, as counts, lengths and offsets do: little-endian.
  void put_number() {
    constexpr uint64_t kNumbers[] = {0,          1,          0x7f,       0xff,
                                     0xffff,     0x7fffffff, 0x80000000, 0xffffffff,
                                     1ull << 32, 1ull << 60, 1ull << 63, ~0ull};
    uint64_t number = kNumbers[below(std::size(kNumbers))] + below(3) - 1;
    size_t bytes = size_t{1} << below(4);
    if (text_.size() < bytes) return;
    std::memcpy(text_.data() + below(text_.size() - bytes + 1), &number, bytes);
  }

  // In place of a number or a word of a text, or anywhere.
  void put_word() {
    static const char* const kWords[] = {
        "-1",         "0",           "1e308",    "-1e-999", "NaN", "9223372036854775808",
        "4294967296", "2147483648",  "null",     "true",    "[]",  "{}",
        "\"\"",       "\"\\u0000\"", "[[[[[[[[", "\xff\xfe"};
    const char* word = kWords[below(std::size(kWords))];
    size_t at = text_.find_first_of("0123456789", place());
    if (at == std::string::npos || below(4) == 0) return text_.insert(place(), word), void();
    size_t end = text_.find_first_not_of("0123456789.", at);
    text_.replace(at, std::min(end, text_.size()) - at, word);
  }

  const std::vector<std::string>& corpus_;
  std::mt19937_64 random_;
  std::string text_;
};

void run(const std::string& input) {
  alarm(kSlow_s);
  try {
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  } catch (const std::exception& e) {
    FAIL() << e.what() << " at input PF_FUZZ_FIRST=" << current.load();
  }
  alarm(0);
}

TEST(Fuzz, TheCorpusAndWhatIsNearItDoesNoHarm) {
  for (int signal_number : {SIGABRT, SIGALRM}) signal(signal_number, say_which);
  if (!kSanitized) {
    for (int signal_number : {SIGSEGV, SIGBUS, SIGFPE}) signal(signal_number, say_which);
    const rlimit most{rlim_t{2} << 30, rlim_t{2} << 30};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &most), 0);
  }
  const std::vector<std::string> corpus = texts_of(read_corpus());
  ASSERT_FALSE(corpus.empty()) << corpus_folder();
  for (const std::string& seed : corpus) ASSERT_NO_FATAL_FAILURE(run(seed));
  const int64_t first = from_environment("PF_FUZZ_FIRST", 0);
  const int64_t n = from_environment("PF_FUZZ_RUNS", target.n_inputs / (kSanitized ? 4 : 1));
  for (int64_t i = first; i < first + n; ++i) {
    current.store(i);
    std::string input = Mutator(corpus, static_cast<uint64_t>(i)).make();
    if (const char* path = std::getenv("PF_FUZZ_SAVE")) std::ofstream(path) << input;
    ASSERT_NO_FATAL_FAILURE(run(input));
  }
}

// If the corpus were refused at its first byte, what is near it would prove little. Those named
// refused-... are faults that were found.
TEST(Fuzz, TheCorpusIsTaken) {
  for (const auto& [name, seed] : read_corpus()) {
    const int64_t before = n_taken;
    run(seed);
    EXPECT_EQ(n_taken > before, !name.starts_with("refused-")) << name << ": " << last_refusal;
  }
}

TEST(Fuzz, InputsDiffer) {
  const std::vector<std::string> corpus = texts_of(read_corpus());
  EXPECT_EQ(Mutator(corpus, 7).make(), Mutator(corpus, 7).make());
  int n_new = 0;
  for (uint64_t i = 0; i < 100; ++i)
    n_new += std::find(corpus.begin(), corpus.end(), Mutator(corpus, i).make()) == corpus.end();
  EXPECT_GT(n_new, 90);
}

}  // namespace
}  // namespace pf::fuzz
