// What each format makes of messages. The exact spaces and line ends are those of the templates
// that the models were published with.
#include <nlohmann/json.hpp>

#include "text/chat_template.h"
#include "text/utf8.h"

namespace pf {
namespace {

std::string stripped(const std::string& text) { return std::string(strip(to_valid_utf8(text))); }

bool begins_with_system(std::span<const ChatMessage> messages) {
  return messages.front().role == "system";
}

std::string place(size_t i) {
  return std::string("messages[").append(std::to_string(i)).append("].role: ");
}

}  // namespace

Status ChatTemplate::check_roles(Messages messages) const {
  if (messages.empty()) return invalid("messages: at least one is needed");
  const bool ipython = kind_ == Kind::kLlama3 && !llama3_date_.empty();
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    const bool known = role == "system" || role == "user" || role == "assistant" ||
                       (role == "tool" && (tool_role_ || ipython)) ||
                       (role == "ipython" && ipython);
    if (!known)
      return invalid(place(i) + "not a role of this model's chat template (" + std::string(name()) +
                     " knows system, user, assistant" + (tool_role_ || ipython ? ", tool" : "") +
                     ")");
  }
  if (kind_ != Kind::kLlama2 && kind_ != Kind::kMistral) return {};
  const size_t n_system = begins_with_system(messages) ? 1 : 0;
  for (size_t i = n_system; i < messages.size(); ++i)
    if (messages[i].role != ((i - n_system) % 2 == 0 ? "user" : "assistant"))
      return invalid(place(i) +
                     "after an optional system message, user and assistant must take "
                     "turns in this model's chat template");
  if (messages.size() == n_system) return invalid("messages: at least one user message is needed");
  return {};
}

Result<ChatTemplate::Parts> ChatTemplate::parts(Messages messages, bool generate) const {
  if (Status s = check_roles(messages); !s.ok()) return s;
  Parts out;
  if (begins_with_bos_ && kind_ != Kind::kLlama2) out.push_back({Part::What::kBos, ""});
  switch (kind_) {
    case Kind::kChatml:
      chatml(messages, generate, &out);
      break;
    case Kind::kLlama2:
      llama2(messages, &out);
      break;
    case Kind::kLlama3:
      llama3(messages, generate, &out);
      break;
    case Kind::kMistral:
      mistral(messages, &out);
      break;
    case Kind::kZephyr:
    case Kind::kPhi3:
      angle_roles(messages, generate, &out);
      break;
    case Kind::kDeepseekCoder:
      deepseek_coder(messages, generate, &out);
      break;
  }
  return out;
}

void ChatTemplate::chatml(Messages messages, bool generate, Parts* out) const {
  using enum Part::What;
  const auto turn = [&](const std::string& text) {
    out->push_back({kMarker, "<|im_start|>"});
    out->push_back({kText, text});
    out->push_back({kMarker, "<|im_end|>"});
    out->push_back({kText, "\n"});
  };
  if (injects_system_ && !begins_with_system(messages)) turn("system\n" + default_system_);
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != "tool" || !tool_responses_) {
      turn(messages[i].role + "\n" + messages[i].content);
      continue;
    }
    // Results of tools that follow each other share one user turn.
    std::string results;
    for (; i < messages.size() && messages[i].role == "tool"; ++i)
      results += "\n<tool_response>\n" + messages[i].content + "\n</tool_response>";
    --i;
    turn("user" + results);
  }
  if (!generate) return;
  out->push_back({kMarker, "<|im_start|>"});
  out->push_back({kText, "assistant\n"});
}

void ChatTemplate::llama2(Messages messages, Parts* out) const {
  using enum Part::What;
  std::string system;
  if (begins_with_system(messages)) {
    system = "<<SYS>>\n" + messages[0].content + "\n<</SYS>>\n\n";
    messages = messages.subspan(1);
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& content = messages[i].content;
    if (messages[i].role == "user") {
      if (begins_with_bos_) out->push_back({kBos, ""});
      out->push_back({kText, "[INST] " + stripped(i == 0 ? system + content : content)});
      out->push_back({kText, " [/INST]"});
    } else {
      out->push_back({kText, std::string(" ").append(stripped(content)).append(" ")});
      out->push_back({kEos, ""});
    }
  }
}

void ChatTemplate::llama3(Messages messages, bool generate, Parts* out) const {
  using enum Part::What;
  const auto header = [&](const std::string& role) {
    out->push_back({kMarker, "<|start_header_id|>"});
    out->push_back({kText, role});
    out->push_back({kMarker, "<|end_header_id|>"});
  };
  const auto turn = [&](const std::string& role, const std::string& content) {
    header(role);
    out->push_back({kText, "\n\n" + content});
    out->push_back({kMarker, "<|eot_id|>"});
  };
  if (!llama3_date_.empty()) {
    std::string system =
        "Cutting Knowledge Date: December 2023\nToday Date: " + llama3_date_ + "\n\n";
    if (begins_with_system(messages)) {
      system += stripped(messages[0].content);
      messages = messages.subspan(1);
    }
    turn("system", system);
  }
  for (const ChatMessage& m : messages) {
    const bool tool = m.role == "tool" || m.role == "ipython";
    // Tool results are written as JSON, as that template does even with plain text.
    turn(tool ? "ipython" : m.role,
         tool ? nlohmann::json(to_valid_utf8(m.content)).dump() : stripped(m.content));
  }
  if (!generate) return;
  header("assistant");
  out->push_back({kText, "\n\n"});
}

void ChatTemplate::mistral(Messages messages, Parts* out) const {
  using enum Part::What;
  std::string system;
  if (begins_with_system(messages)) {
    system = messages[0].content + "\n\n";
    messages = messages.subspan(1);
  }
  // The brackets are markers where the vocabulary has them; their spaces are text.
  const auto bracket = [&](std::string_view spaced, std::string_view marker) {
    const size_t at = spaced.find(marker);
    out->push_back({kText, std::string(spaced.substr(0, at))});
    out->push_back({kMarker, std::string(marker)});
    out->push_back({kText, std::string(spaced.substr(at + marker.size()))});
  };
  const size_t last_user = (messages.size() - 1) / 2 * 2;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& content = messages[i].content;
    if (messages[i].role == "user") {
      bracket(open_, "[INST]");
      if (i == (system_in_last_user_ ? last_user : 0)) out->push_back({kText, system});
      out->push_back({kText, content});
      bracket(close_, "[/INST]");
    } else {
      out->push_back({kText, std::string(space_before_answer_ ? " " : "") + content});
      out->push_back({kEos, ""});
      if (space_after_answer_) out->push_back({kText, " "});
    }
  }
}

void ChatTemplate::angle_roles(Messages messages, bool generate, Parts* out) const {
  using enum Part::What;
  const bool phi = kind_ == Kind::kPhi3;
  for (const ChatMessage& m : messages) {
    out->push_back({kMarker, std::string("<|").append(m.role).append("|>")});
    out->push_back({kText, "\n" + m.content});
    out->push_back(phi ? Part{kMarker, "<|end|>"} : Part{kEos, ""});
    out->push_back({kText, "\n"});
  }
  if (generate) {
    out->push_back({kMarker, "<|assistant|>"});
    out->push_back({kText, "\n"});
  } else if (ends_with_eos_) {
    out->push_back({kEos, ""});
  }
}

void ChatTemplate::deepseek_coder(Messages messages, bool generate, Parts* out) const {
  using enum Part::What;
  bool has_system = false;
  for (const ChatMessage& m : messages) has_system = has_system || m.role == "system";
  if (!has_system && injects_system_) out->push_back({kText, default_system_});
  for (const ChatMessage& m : messages) {
    if (m.role == "system") {
      out->push_back({kText, m.content});
    } else if (m.role == "user") {
      out->push_back({kText, "### Instruction:\n" + m.content + "\n"});
    } else {
      out->push_back({kText, "### Response:\n" + m.content + "\n"});
      out->push_back({kMarker, "<|EOT|>"});
      out->push_back({kText, "\n"});
    }
  }
  if (generate)
    out->push_back({kText, newline_after_response_ ? "### Response:\n" : "### Response:"});
}

Result<std::vector<int32_t>> ChatTemplate::render(Messages messages, const Tokenizer& tokenizer,
                                                  bool add_generation_prompt) const {
  Result<Parts> made = parts(messages, add_generation_prompt);
  if (!made.ok()) return made.status();
  std::vector<int32_t> ids;
  std::string text;    // of neighbouring parts, which is encoded as one
  bool strip = false;  // the marker before swallows white space
  const auto flush = [&] {
    const std::string valid = to_valid_utf8(text);
    const std::string_view rest = strip ? strip_left(valid) : std::string_view(valid);
    const auto more = tokenizer.encode(rest, {.add_special = false, .parse_special = false});
    ids.insert(ids.end(), more.begin(), more.end());
    text.clear();
  };
  for (const Part& part : *made) {
    std::optional<int32_t> id;
    if (part.what == Part::What::kBos) id = tokenizer.bos();
    if (part.what == Part::What::kEos) id = tokenizer.eos();
    if (part.what == Part::What::kMarker) id = tokenizer.find_marker(part.text);
    if (!id) {
      text += part.text;
      continue;
    }
    flush();
    ids.push_back(*id);
    strip =
        tokenizer.strips_right(*id) || (kind_ == Kind::kPhi3 && part.what == Part::What::kMarker);
  }
  flush();
  return ids;
}

Result<std::string> ChatTemplate::render_text(Messages messages, const Tokenizer& tokenizer,
                                              bool add_generation_prompt) const {
  Result<Parts> made = parts(messages, add_generation_prompt);
  if (!made.ok()) return made.status();
  std::string text;
  for (const Part& part : *made) {
    text += part.text;
    if (part.what == Part::What::kBos && tokenizer.bos()) text += tokenizer.bytes(*tokenizer.bos());
    if (part.what == Part::What::kEos && tokenizer.eos()) text += tokenizer.bytes(*tokenizer.eos());
  }
  return to_valid_utf8(text);
}

}  // namespace pf
