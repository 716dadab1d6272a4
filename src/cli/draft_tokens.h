#pragma once

#include "base/status.h"
#include "engine/options.h"
#include "text/tokenizer.h"

namespace pf {

// Fills in what the tokens of a draft are to the target's, from the tokenizer in the draft's files,
// if there is one. An error is a tokenizer that cannot be read; one that does not go with the
// target's is Tokens::kForeign.
Status read_draft_tokens(const Tokenizer& target, DraftOption* draft);

// The same for every draft of the options.
Status read_draft_tokens(const Tokenizer& target, EngineOptions* options);

}  // namespace pf
