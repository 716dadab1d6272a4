#include "fuzz/target.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

const pf::fuzz::Target pf::fuzz::target{"tokenizer", 50000};

// tokenizer.json, or SentencePiece's tokenizer.model when it does not begin as JSON does; then text
// through whatever tokenizer that makes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pf;
  const bool is_json = size > 0 && data[0] == '{';
  Result<Vocabulary> vocabulary = is_json ? read_tokenizer_json(fuzz::text_of(data, size))
                                          : read_sentencepiece(fuzz::bytes_of(data, size));
  if (!vocabulary.ok()) return fuzz::check_refusal(vocabulary.status()), 0;
  Result<Tokenizer> tokenizer = Tokenizer::create(vocabulary.take());
  if (!tokenizer.ok()) return fuzz::check_refusal(tokenizer.status()), 0;
  for (std::string_view text : {std::string_view(), std::string_view("ab ba  aab<s>\n"),
                                std::string_view("\xff\xe4\xb8\xad\xe6\x96\x87\xcc\x81\0x", 11)})
    for (bool special : {false, true}) {
      std::vector<int32_t> ids =
          tokenizer->encode(text, {.add_special = special, .parse_special = special});
      for (int32_t id : ids)
        check(id >= 0 && id < tokenizer->size(), "a token outside of the vocabulary");
      check(is_valid_utf8(tokenizer->decode(ids, special)), "a text that is no UTF-8");
    }
  ++fuzz::n_taken;
  return 0;
}
