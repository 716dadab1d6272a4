#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/blas.h"
#include "backend/cuda/collective.h"
#include "backend/footprint.h"
#include "base/progress.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "base/view.h"
#include "model/model.h"

namespace pf {

struct CudaOptions {
  // Activations, KV and 16-bit weights.
  enum class Numbers { kF16, kBf16 };
  Numbers numbers = Numbers::kBf16;
  bool int8_kv = false;  // KV in int8 with a scale per token and head
  bool int4 = false;     // matrices in groups of 32; 4-bit files are kept as they are
  int32_t n_blocks = 0;
  int32_t block_tokens = 16;
  int32_t max_rows = 512;  // T of a forward pass
  int64_t max_context = 0;
  int32_t head_chunk_rows = 65;  // logit rows that are on hand at once: a tree and its root
  bool judges = true;  // accept() and score(), which nobody asks of a model that only drafts
  int32_t max_sequences = 64;  // that a step usually judges: they get room at once
  int32_t draft_top_n = 128;   // tokens that a draft's q ranges over
  // Small passes and drafts as CUDA graphs, the results are the same; not with several devices.
  bool graphs = true;
  bool keep_hidden = false;  // of every row, for Backend::hidden_states
  // Which of them: the residual stream in front of these layers; empty: behind the final norm.
  std::vector<int32_t> tap_layers = {};
  // A head's: those of its target, which outlives it. It works on the target's stream.
  HiddenStates hidden_of = {};
  // Who multiplies a prompt's rows with 16-bit matrices. With cuBLAS their sums depend on how the
  // prompt is cut into chunks; rows of decode and verification are the same as ever.
  enum class PrefillGemm { kOwn, kCublas };
  PrefillGemm prefill_gemm = PrefillGemm::kOwn;
  Blas blas = nullptr;           // stands in for cuBLAS, which is loaded where there is none
  Progress* progress = nullptr;  // counts Footprint::read_bytes of all ranks while weights are sent
  // Devices 0 .. n - 1 that share the model (shard.h), and what they exchange their sums with:
  // stands in for NCCL, which is loaded where there is none.
  int32_t n_devices = 1;
  AllGather gather = nullptr;
};

// How many CUDA devices this process may use; 0 also where no driver is. `why_none` says which.
int32_t n_cuda_devices(std::string* why_none = nullptr);

// Whether there are so many, and the first n can run the kernels (compute capability 8.0).
Status check_cuda_devices(int32_t n);

// Free memory of the present device, or the least that devices 0 .. n - 1 have; 0 without one.
int64_t cuda_free_bytes(int32_t n_devices = 1);

// A model on the present CUDA device, or on the first n_devices.
//
// Streams and waits. All that a model does is on one stream of its own, which a head shares with
// its target: passes, drafts, the accept rule, moves of K and V, and the copies, which are small
// and in pinned memory. The host waits for accept() once, for one copy of the verdict (sampling and
// acceptance are on the device; logits come to the host for tests and self-tests only), and so for
// score(). propose()
// waits once for one copy of the drafts where they are chains or trees of the same widths, and for
// heads over hidden states where they are chains; once a level where trees grow by gain, differ in
// shape, or come from such a head. A head for each position to come waits once for all. So a step
// has one wait without a drafter on the device and mostly two with one. Events serve only to tell
// when pinned memory may be written again.
//
// Everything is packed and sent when
// it is made, with all threads of the pool; `model` and `pool` may go away afterwards.
// `embedding_of` is the target whose embedding a draft uses, null else; such a model has one
// device. Refuses shapes that kernels do not serve or devices cannot share, and want of memory.
Result<std::unique_ptr<Backend>> make_cuda_backend(const Model& model, const Model* embedding_of,
                                                   const CudaOptions& options, ThreadPool& pool);

// What that takes; with n_devices, of the device of one rank: the first has the most. Reads shapes
// only, and needs neither device nor toolkit.
Footprint cuda_footprint(const Model& model, const Model* embedding_of, const CudaOptions& options,
                         int32_t rank = 0);

}  // namespace pf
