#include "cli/generate_request.h"

#include <iostream>

#include "base/files.h"
#include "text/utf8.h"

namespace pf {
namespace {

// As much as a request to the server may hold.
constexpr size_t kMaxTextBytes = kMaxRequestBytes;

Result<std::string> read_standard_input() {
  std::string text(kMaxTextBytes + 1, '\0');
  std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::cin.gcount()));
  if (text.size() > kMaxTextBytes)
    return invalid("-: more than " + std::to_string(kMaxTextBytes) + " bytes, which is the limit");
  return text;
}

// The whole text of a file, which must have one.
Result<std::string> read_text(const std::string& flag, const std::string& path) {
  Result<std::string> text =
      path == "-" ? read_standard_input() : read_whole_file(path, kMaxTextBytes);
  if (!text.ok()) return text.status().within(flag);
  if (text->empty()) return invalid(flag + ": " + path + ": is empty");
  return text;
}

// `where`: a flag, and behind it the file.
Status check_utf8(const std::string& where, const std::string& text) {
  return is_valid_utf8(text) ? Status() : invalid(where + ": is no valid UTF-8");
}

Result<std::string> prompt_of(const GenerateOptions& o) {
  if (o.prompt.has_value() == o.prompt_file.has_value())
    return invalid("give one of --prompt and --prompt-file");
  const std::string flag = o.prompt ? "--prompt" : "--prompt-file";
  Result<std::string> text = o.prompt ? *o.prompt : read_text(flag, *o.prompt_file);
  if (!text.ok()) return text;
  if (text->empty()) return invalid(flag + " is empty; give a text to go on from");
  if (Status s = check_utf8(o.prompt ? flag : flag + ": " + *o.prompt_file, *text); !s.ok())
    return s;
  return text;
}

// Comparisons are written so that NaN fails them.
Status check_numbers(const GenerateOptions& o) {
  if (o.temperature && !(*o.temperature >= 0 && *o.temperature <= 100))
    return invalid("--temperature: needs a number in 0..100");
  if (o.top_k && *o.top_k < -1)
    return invalid("--top-k: needs a whole number >= -1 (0 and -1: off)");
  if (o.top_p && !(*o.top_p > 0 && *o.top_p <= 1))
    return invalid("--top-p: needs a number above 0 and up to 1");
  return {};
}

Status check_stops(const std::vector<std::string>& stops) {
  if (stops.size() > static_cast<size_t>(kMaxStopStrings))
    return invalid("--stop: at most " + std::to_string(kMaxStopStrings) + " of them");
  for (const std::string& stop : stops) {
    if (stop.empty() || stop.size() > static_cast<size_t>(kMaxStopStringBytes))
      return invalid("--stop: needs a text of 1 to " + std::to_string(kMaxStopStringBytes) +
                     " bytes");
    if (Status s = check_utf8("--stop", stop); !s.ok()) return s;
  }
  return {};
}

void replace(std::string* text, std::string_view what, std::string_view by) {
  size_t at = text->find(what);
  if (at != std::string::npos) text->replace(at, what.size(), by);
}

}  // namespace

Result<wire::GenerateRequest> make_generate_request(const GenerateOptions& o) {
  Result<std::string> prompt = prompt_of(o);
  if (!prompt.ok()) return prompt.status();
  if (Status s = check_numbers(o); !s.ok()) return s;
  if (Status s = check_stops(o.stop); !s.ok()) return s;
  wire::GenerateRequest r;
  if (o.predicted_file) {
    Result<std::string> predicted = read_text("--predicted-file", *o.predicted_file);
    if (!predicted.ok()) return predicted.status();
    if (Status s = check_utf8("--predicted-file: " + *o.predicted_file, *predicted); !s.ok())
      return s;
    r.mutable_speculation()->set_predicted_text(predicted.take());
  }
  if (o.chat) {
    wire::Message* message = r.mutable_messages()->add_messages();
    message->set_role("user");
    message->set_content(prompt.take());
  } else {
    r.set_text(prompt.take());
  }
  if (o.temperature) r.mutable_sampling()->set_temperature(*o.temperature);
  if (o.top_k) r.mutable_sampling()->set_top_k(*o.top_k);
  if (o.top_p) r.mutable_sampling()->set_top_p(*o.top_p);
  if (o.max_new_tokens) r.mutable_stopping()->set_max_new_tokens(*o.max_new_tokens);
  for (const std::string& stop : o.stop) r.mutable_stopping()->add_stop_strings(stop);
  r.mutable_output()->set_timing(true);
  return r;
}

Status in_flags(const Status& refusal, bool context_is_set) {
  if (refusal.ok()) return refusal;
  std::string text = refusal.message();
  const std::pair<std::string_view, std::string_view> words[] = {
      {"; use text", "; leave --chat away"},
      {"messages cannot be used", "--chat cannot be used"},
      {"this server", "this program"},
      {" or set truncate_prompt_tokens",
       context_is_set ? " or raise --max-model-len, as far as the model's own context goes" : ""},
      {"prompt has ", "the prompt has "},
      {"speculation.predicted_text", "--predicted-file"},
      {"; leave it out", "; leave it away, or --speculation off"},
      {"stopping.max_new_tokens", "--max-new-tokens"},
      {"stopping.stop_strings", "--stop"},
      {"sampling.", "--"}};
  for (auto [field, flag] : words) replace(&text, field, flag);
  return Status(refusal.code(), text);
}

}  // namespace pf
