#pragma once

#include <cstdint>

#include "engine/options.h"
#include "model/model.h"

namespace pf {

// Draft tokens of a chain, where the request names none: as asked for, else as the rule that sets
// them goes.
int32_t longest_chain(const EngineOptions& options);

// How many logit rows a CUDA backend gets room for at once (CudaOptions::head_chunk_rows), so that
// a step with full drafts of --max-num-seqs sequences reads the head's weights once: of the target,
// each sequence's root and nodes; of a draft, the widest level of all drafts. Requests may ask for
// more, and then the head is read again. Never more than kMostHeadRows: there a product takes the
// tensor cores of every device of device_model.h at least twice as long as the memory takes to
// read the weights, 16-bit or 4-bit, so reading them again costs little and room costs blocks.
inline constexpr int32_t kMostHeadRows = 512;
int32_t target_head_rows(const EngineOptions& options);
int32_t draft_head_rows(const EngineOptions& options, const Model& draft);

}  // namespace pf
