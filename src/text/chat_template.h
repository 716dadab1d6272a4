#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace pf {

struct ChatMessage {
  std::string role;
  std::string content;
};

// Written-down chat formats. Jinja is not interpreted: the model's template text only tells which
// format it is, and a few choices inside it.
class ChatTemplate {
 public:
  enum class Kind { kChatml, kLlama2, kLlama3, kMistral, kZephyr, kPhi3, kDeepseekCoder };

  // "chatml", "llama-2", "llama-3", "mistral", "zephyr", "tinyllama", "phi-3", "deepseek-coder",
  // each in its plain form: without a default system message.
  static std::optional<ChatTemplate> by_name(std::string_view name);

  // The format of a model's own template text; nullopt when it is none of these.
  static std::optional<ChatTemplate> recognise(std::string_view template_text);

  Kind kind() const { return kind_; }
  std::string_view name() const;
  // Whether a system message is put first when the client gives none, and its text.
  bool injects_system() const { return injects_system_; }
  const std::string& default_system() const { return default_system_; }

  // The prompt as ids. The template's own markers are special tokens where the vocabulary has them;
  // the text of a message never is. INVALID_ARGUMENT names messages[i]; it never repeats what the
  // client wrote. With add_generation_prompt the assistant's turn is opened.
  Result<std::vector<int32_t>> render(std::span<const ChatMessage> messages,
                                      const Tokenizer& tokenizer, bool add_generation_prompt) const;

  // The same as text, for people: the ids cannot be had back from it safely.
  Result<std::string> render_text(std::span<const ChatMessage> messages, const Tokenizer& tokenizer,
                                  bool add_generation_prompt) const;

 private:
  // A stretch of the prompt: a marker of the template, or text.
  struct Part {
    enum class What { kText, kMarker, kBos, kEos } what;
    std::string text;
  };
  using Parts = std::vector<Part>;
  using Messages = std::span<const ChatMessage>;

  explicit ChatTemplate(Kind kind);

  Result<Parts> parts(Messages messages, bool generate) const;
  void chatml(Messages messages, bool generate, Parts* out) const;
  void llama2(Messages messages, Parts* out) const;
  void llama3(Messages messages, bool generate, Parts* out) const;
  void mistral(Messages messages, Parts* out) const;
  void angle_roles(Messages messages, bool generate, Parts* out) const;  // zephyr and phi-3
  void deepseek_coder(Messages messages, bool generate, Parts* out) const;

  Status check_roles(Messages messages) const;
  void read_choices(std::string_view text);

  Kind kind_;
  bool injects_system_ = false;
  std::string default_system_;
  bool begins_with_bos_ = false;
  bool tool_responses_ = false;       // chatml: tool results stand inside a user turn (Qwen2.5)
  bool tool_role_ = true;             // a message may have the role "tool"
  std::string llama3_date_;           // llama-3.1: the system header always stands, with this date
  bool ends_with_eos_ = false;        // phi-3: EOS instead of a generation prompt
  bool system_in_last_user_ = false;  // mistral
  std::string open_ = "[INST] ";      // mistral, with its spaces
  std::string close_ = " [/INST]";    //
  bool space_before_answer_ = false;  //
  bool space_after_answer_ = false;   //
  bool newline_after_response_ = false;  // deepseek-coder
};

}  // namespace pf
