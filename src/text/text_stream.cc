#include "text/text_stream.h"

#include <algorithm>

#include "base/check.h"

namespace pf {

TextStream::TextStream(const Tokenizer& tokenizer, const StopMatcher& stops, Options options)
    : detokenizer_(tokenizer, {options.skip_special, options.at_text_start}),
      stops_(&stops),
      include_stop_string_(options.include_stop_string) {}

TextStream::Delta TextStream::push(int32_t id, bool may_stop) {
  check(!stopped_, "a token was pushed after the end of the text");
  std::string text;
  detokenizer_.append(id, &text);
  return take(text, may_stop);
}

TextStream::Delta TextStream::take(std::string_view text, bool may_stop) {
  Delta delta;
  for (size_t i = 0; i < text.size(); ++i) {
    state_ = stops_->next(state_, text[i]);
    const std::optional<int> match = stops_->match(state_);
    if (!match || !may_stop) continue;
    delta.text = held_;
    delta.text += text.substr(0, i + 1);
    if (!include_stop_string_) delta.text.resize(delta.text.size() - stops_->string(*match).size());
    delta.stopped_by = *match;
    stopped_ = true;
    held_.clear();
    return delta;
  }
  held_ += text;
  const size_t n_ready = held_.size() - std::min(held_.size(), stops_->held_bytes(state_));
  delta.text = held_.substr(0, n_ready);
  held_.erase(0, n_ready);
  return delta;
}

std::string TextStream::push_stop_token(int32_t id) {
  check(!stopped_, "a token was pushed after the end of the text");
  std::string text;
  if (include_stop_string_) detokenizer_.append_shown(id, &text);
  return take(text, false).text;
}

std::string TextStream::finish() {
  if (stopped_) return "";
  stopped_ = true;
  return std::move(held_) + detokenizer_.flush(Detokenizer::Cut::kDrop);
}

}  // namespace pf
