#include "text/detokenizer.h"

#include "text/utf8.h"

namespace pf {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, Options options)
    : tokenizer_(&tokenizer),
      skip_special_(options.skip_special),
      strip_space_(options.at_text_start && tokenizer.vocabulary().add_space_prefix) {}

void Detokenizer::append(int32_t id, std::string* out) {
  if (skip_special_ && tokenizer_->is_special(id)) return;
  append_shown(id, out);
}

void Detokenizer::append_shown(int32_t id, std::string* out) {
  std::string_view bytes = tokenizer_->bytes(id);
  if (strip_space_ && !bytes.empty() && !tokenizer_->is_special(id)) {
    if (bytes.front() == ' ') bytes.remove_prefix(1);
    strip_space_ = false;
  }
  add_bytes(bytes, out);
}

void Detokenizer::add_bytes(std::string_view bytes, std::string* out) {
  pending_ += bytes;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Scan s = scan_utf8(rest);
    if (s.verdict == Utf8Scan::Verdict::kCut) break;
    *out += s.verdict == Utf8Scan::Verdict::kValid ? rest.substr(0, s.length) : kReplacement;
    rest.remove_prefix(s.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
}

std::string Detokenizer::flush(Cut cut) {
  const bool replace = !pending_.empty() && cut == Cut::kReplace;
  pending_.clear();
  return std::string(replace ? kReplacement : std::string_view());
}

}  // namespace pf
