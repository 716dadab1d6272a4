#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pre_tokenizer.h"

#include <pcre2.h>

#include <algorithm>

#include "text/utf8.h"

namespace pf {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kWhiteSpace =
    R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr size_t kMaxPatternBytes = 16384;
constexpr size_t kMaxPatterns = 32;   // each is a level of recursion
constexpr int64_t kMaxLimitHits = 8;  // per text; beyond them the safe rule takes all the rest

// \s and \S spelled out, inside and outside of brackets. \S inside brackets stays PCRE2's own.
std::string spell_out_spaces(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's' && in_class)
        out += kWhiteSpace;
      else if (next == 's')
        out.append("[").append(kWhiteSpace).append("]");
      else if (next == 'S' && !in_class)
        out.append("[^").append(kWhiteSpace).append("]");
      else
        out.append({c, next});
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

// Pieces of white space and what follows it: "ab", " cd", "\n ef".
void split_safely(std::string_view text, const std::function<void(std::string_view)>& visit) {
  size_t begin = 0;
  bool after_space = true;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = first_code_point(text.substr(i));
    const bool space = is_white_space(c.value);
    if (space && !after_space) {
      visit(text.substr(begin, i - begin));
      begin = i;
    }
    after_space = space;
    i += c.length;
  }
  if (begin < text.size()) visit(text.substr(begin));
}

}  // namespace

// What matching writes to; one per call of split, since the compiled patterns are shared.
struct PreTokenizer::Scratch {
  explicit Scratch(EncodeWork* work)
      : work(work),
        data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32 << 10, 1 << 20, nullptr)) {
    check(data && context && stack, "out of memory for PCRE2");
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }

  EncodeWork* work;
  int64_t n_limits = 0;
  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

void PreTokenizer::FreeCode::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

Result<PreTokenizer> PreTokenizer::create(const std::vector<std::string>& patterns) {
  if (patterns.size() > kMaxPatterns)
    return invalid("pre-tokenizer: " + std::to_string(patterns.size()) +
                   " patterns, the limit is " + std::to_string(kMaxPatterns));
  PreTokenizer made;
  for (size_t i = 0; i < patterns.size(); ++i) {
    const std::string where = "pre-tokenizer pattern " + std::to_string(i);
    if (patterns[i].size() > kMaxPatternBytes)
      return invalid(where + ": longer than " + std::to_string(kMaxPatternBytes) + " bytes");
    const std::string spelled = spell_out_spaces(patterns[i]);
    int error = 0;
    PCRE2_SIZE at = 0;
    pcre2_code* code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
    if (!code) {
      PCRE2_UCHAR text[128] = {};
      pcre2_get_error_message(error, text, sizeof(text));
      return invalid(where + ": " + reinterpret_cast<const char*>(text) + " at byte " +
                     std::to_string(at));
    }
    made.steps_.emplace_back(code);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without JIT the interpreter matches
  }
  return made;
}

Result<std::vector<std::string>> PreTokenizer::patterns_of(const std::string& name) {
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const std::string gpt2(kGpt2Pattern);
  if (is({"smollm", "starcoder", "refact", "command-r", "codeshell"}))
    return std::vector<std::string>{R"(\p{N})", gpt2};
  if (is({"gpt-2", "gpt2", "mpt", "olmo", "jais", "phi-2", "roberta-bpe"}))
    return std::vector<std::string>{gpt2};
  if (is({"llama-bpe", "llama3", "llama-v3", "llama-3", "smaug-bpe", "dbrx"}))
    return std::vector<std::string>{std::string(kLlama3Pattern)};
  if (is({"qwen2", "stablelm2", "deepseek-r1-qwen"}))
    return std::vector<std::string>{std::string(kQwen2Pattern)};
  if (is({"deepseek-coder"}))
    return std::vector<std::string>{"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                    "[\\x{4e00}-\\x{9fa5}\\x{0800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+",
                                    R"(\p{N})"};
  if (is({"", "default"}))
    return std::vector<std::string>{R"([\p{P}\$\+<=>\^~\|]+)", gpt2, R"(\p{N}+)",
                                    "[0-9][0-9][0-9]"};
  return Status(Code::kUnimplemented, "the pre-tokenizer '" + name.substr(0, 60) +
                                          "' is not known; known are smollm, gpt-2, llama-bpe, "
                                          "qwen2, deepseek-coder, default and their aliases");
}

void PreTokenizer::split(std::string_view text, EncodeWork* work,
                         const std::function<void(std::string_view)>& visit) const {
  if (text.empty()) return;
  if (steps_.empty()) return visit(text);
  Scratch scratch(work);
  // Linear patterns stay far below this; an exponential one is stopped by it.
  pcre2_set_match_limit(scratch.context, static_cast<uint32_t>(std::min<size_t>(
                                             16 * text.size() + 100000, 1u << 31)));
  split_from(0, text, &scratch, visit);
  work->regex_limits += scratch.n_limits;
}

void PreTokenizer::split_from(size_t step, std::string_view text, Scratch* scratch,
                              const std::function<void(std::string_view)>& visit) const {
  if (step == steps_.size()) return visit(text);
  const auto next = [&](size_t begin, size_t end) {
    if (begin < end) split_from(step + 1, text.substr(begin, end - begin), scratch, visit);
  };
  size_t done = 0, at = 0;
  while (at < text.size()) {
    ++scratch->work->regex_calls;
    const int rc =
        scratch->n_limits >= kMaxLimitHits
            ? PCRE2_ERROR_MATCHLIMIT
            : pcre2_match(steps_[step].get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                          text.size(), at, PCRE2_NO_UTF_CHECK, scratch->data, scratch->context);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      ++scratch->n_limits;
      return split_safely(text.substr(done), visit);
    }
    // Copied, since the steps below use the same scratch.
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(scratch->data);
    const size_t begin = span[0], end = span[1];
    if (end <= begin) {  // an empty match cuts nothing; \K may even turn it around
      at = std::max(at, begin);
      if (at < text.size()) at += first_code_point(text.substr(at)).length;
      continue;
    }
    next(done, begin);
    next(begin, end);
    done = at = end;
  }
  next(done, text.size());
}

}  // namespace pf
