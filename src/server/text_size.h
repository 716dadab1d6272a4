#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "proto/pilotfish/v1/inference.pb.h"
#include "text/tokenizer.h"

namespace pf {

// Work on more bytes of text than this leaves the threads of gRPC; see TextWorkers.
inline constexpr int64_t kLongTextBytes = 32 << 10;

// What there is to tokenise, or to make text of.
int64_t text_bytes(const pilotfish::v1::GenerateRequest& request);
int64_t text_bytes(const pilotfish::v1::TokenizeRequest& request);
int64_t text_bytes(const pilotfish::v1::DetokenizeRequest& request);
inline int64_t text_bytes(const pilotfish::v1::GetModelInfoRequest&) { return 0; }

// How much text a token stands for.
struct TokenBytes {
  int64_t most = 0;  // bytes at most, of those counted; 0: no bound, some text is dropped or joined
  std::array<bool, 256> counted{};  // by byte; a vocabulary may drop others

  int64_t counted_in(std::string_view text) const;
  // Templates may drop white space at the ends of a message, never more. 0 for token ids.
  int64_t counted_in_prompt(const pilotfish::v1::GenerateRequest& request) const;
};
// Looks at every token.
TokenBytes token_bytes_of(const Tokenizer& tokenizer);

}  // namespace pf
