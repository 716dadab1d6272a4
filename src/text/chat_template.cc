#include "text/chat_template.h"

#include <array>
#include <utility>

namespace pf {
namespace {

using Kind = ChatTemplate::Kind;

constexpr std::array<std::pair<std::string_view, Kind>, 8> kNames = {{
    {"chatml", Kind::kChatml},
    {"llama-2", Kind::kLlama2},
    {"llama-3", Kind::kLlama3},
    {"mistral", Kind::kMistral},
    {"zephyr", Kind::kZephyr},
    {"phi-3", Kind::kPhi3},
    {"deepseek-coder", Kind::kDeepseekCoder},
    {"tinyllama", Kind::kZephyr},
}};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The inside of a Jinja string literal.
std::string unescaped(std::string_view literal) {
  std::string out;
  for (size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\' || i + 1 == literal.size()) {
      out += literal[i];
      continue;
    }
    const char c = literal[++i];
    out += c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
  }
  return out;
}

// What a template says between `open` (inside of a string literal) and `close` without leaving the
// literal: its default system message. Both spellings of a line end occur in such files.
std::optional<std::string> literal_between(std::string_view text, std::string_view open,
                                           std::string_view close) {
  for (size_t at = text.find(open); at != std::string_view::npos; at = text.find(open, at + 1)) {
    std::string_view rest = text.substr(at + open.size());
    if (rest.starts_with("\\n"))
      rest.remove_prefix(2);
    else if (rest.starts_with('\n'))
      rest.remove_prefix(1);
    else
      continue;
    const std::string_view inside = rest.substr(0, rest.find(close));
    const bool leaves = has(inside, "{{") || has(inside, "' +") || has(inside, "'+") ||
                        has(inside, "\" +") || has(inside, "}}");
    if (inside.size() < rest.size() && !leaves) return unescaped(inside);
  }
  return std::nullopt;
}

std::optional<Kind> kind_of(std::string_view text) {
  if (has(text, "<|im_start|>") && !has(text, "<|im_sep|>")) return Kind::kChatml;
  if (has(text, "<|start_header_id|>")) return Kind::kLlama3;
  if (has(text, "[INST]")) return has(text, "<<SYS>>") ? Kind::kLlama2 : Kind::kMistral;
  const bool angles = has(text, "<|user|>") ||
                      (has(text, "'<|' + message['role'] + '|>'") && has(text, "<|assistant|>"));
  if (angles && has(text, "<|end|>")) return Kind::kPhi3;
  if (angles && has(text, "eos_token")) return Kind::kZephyr;
  if (has(text, "### Instruction:") && has(text, "<|EOT|>")) return Kind::kDeepseekCoder;
  return std::nullopt;
}

}  // namespace

ChatTemplate::ChatTemplate(Kind kind) : kind_(kind) {
  begins_with_bos_ = kind == Kind::kLlama2 || kind == Kind::kLlama3 || kind == Kind::kMistral ||
                     kind == Kind::kDeepseekCoder;
  tool_role_ = kind == Kind::kChatml;
}

std::string_view ChatTemplate::name() const {
  for (const auto& [name, kind] : kNames)
    if (kind == kind_) return name;
  return "";
}

std::optional<ChatTemplate> ChatTemplate::by_name(std::string_view name) {
  for (const auto& [known, kind] : kNames)
    if (known == name) return ChatTemplate(kind);
  return std::nullopt;
}

std::optional<ChatTemplate> ChatTemplate::recognise(std::string_view template_text) {
  const std::optional<Kind> kind = kind_of(template_text);
  if (!kind) return std::nullopt;
  std::optional<ChatTemplate> made = ChatTemplate(*kind);
  made->read_choices(template_text);
  return made;
}

void ChatTemplate::read_choices(std::string_view text) {
  begins_with_bos_ = has(text, "bos_token") || (kind_ == Kind::kLlama3 && begins_with_bos_);
  switch (kind_) {
    case Kind::kChatml:
      if (auto system = literal_between(text, "<|im_start|>system", "<|im_end|>")) {
        injects_system_ = true;
        default_system_ = *system;
      }
      tool_responses_ = has(text, "<tool_response>");
      break;
    case Kind::kLlama3:
      if (has(text, "Cutting Knowledge Date")) {
        constexpr std::string_view kDate = "date_string = \"";
        const size_t at = text.find(kDate);
        llama3_date_ = "26 Jul 2024";
        if (at != std::string_view::npos) {
          const std::string_view rest = text.substr(at + kDate.size());
          llama3_date_ = rest.substr(0, rest.find('"'));
        }
      }
      break;
    case Kind::kMistral:
      open_ = has(text, "' [INST]") || has(text, "\" [INST]") ? " [INST]" : "[INST]";
      if (has(text, "[INST] ")) open_ += ' ';
      close_ = has(text, " [/INST]") ? " [/INST]" : "[/INST]";
      space_before_answer_ = has(text, "' ' + message") || has(text, "\" \" + message");
      space_after_answer_ = has(text, "eos_token + ' '") || has(text, "eos_token + \" \"");
      system_in_last_user_ = has(text, "loop.last");
      break;
    case Kind::kPhi3:
      ends_with_eos_ = has(text, "else %}{{ eos_token }}");
      break;
    case Kind::kDeepseekCoder: {
      const size_t at = text.find("You are an AI programming assistant");
      injects_system_ = at != std::string_view::npos;
      if (injects_system_) default_system_ = unescaped(text.substr(at, text.find('\'', at) - at));
      const size_t last = text.rfind("### Response:");
      newline_after_response_ =
          last != std::string_view::npos && text.substr(last + 13).starts_with("\\n");
      break;
    }
    case Kind::kLlama2:
    case Kind::kZephyr:
      break;
  }
}

}  // namespace pf
