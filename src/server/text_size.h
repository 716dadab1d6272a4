#pragma once

#include <cstdint>

#include "proto/pilotfish/v1/inference.pb.h"
#include "text/tokenizer.h"

namespace pf {

// Work on more bytes of text than this leaves the threads of gRPC; see TextWorkers.
inline constexpr int64_t kLongTextBytes = 32 << 10;

// Bytes of text that a prompt is made of for certain: templates may drop white space at the ends of
// a message, never more. 0 for token ids.
int64_t prompt_bytes(const pilotfish::v1::GenerateRequest& request);

// What there is to tokenise, or to make text of.
int64_t text_bytes(const pilotfish::v1::GenerateRequest& request);
int64_t text_bytes(const pilotfish::v1::TokenizeRequest& request);
int64_t text_bytes(const pilotfish::v1::DetokenizeRequest& request);
inline int64_t text_bytes(const pilotfish::v1::GetModelInfoRequest&) { return 0; }

// One token stands for at most so many bytes of a text; 0: there is no such number, since the
// vocabulary drops or joins what it does not know, or white space. Looks at every token.
int64_t most_bytes_of_a_token(const Tokenizer& tokenizer);

}  // namespace pf
