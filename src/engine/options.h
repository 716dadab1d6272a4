#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "speculation/alpha_control.h"
#include "speculation/draft_vocabulary.h"

namespace pf {

// What the engine is made of, as flags, environment or file set it (cli/ maps names to fields).
struct DraftOption {
  std::string name;  // "" = "model"
  std::string path;  // a model file or folder, or "self"
  // What its tokens are to the target's, by those who read both tokenizers. Unknown: there is no
  // tokenizer to ask, and an equal vocab_size is taken for equal tokens.
  enum class Tokens { kUnknown, kEqual, kMapped, kForeign };
  Tokens tokens = Tokens::kUnknown;
  DraftVocabulary vocabulary = {};  // kMapped
  std::string why_foreign = {};     // kForeign: there is no map, in words
};

struct EngineOptions {
  std::string model;
  std::vector<DraftOption> drafts;
  int32_t draft_layers = 0;                 // with path "self"; 0: all of the target's
  std::string draft_quantization = "int4";  // int4, int8, none
  float draft_temperature = -1;             // < 0: the request's
  float draft_rope_theta = 0;               // 0: the file's
  std::string draft_lora;                   // [NAME=]FOLDER, of a draft model; empty: none
  std::string quantization = "none";        // of the target: none, int8, int4
  std::string device = "auto";              // auto, cpu, cuda
  std::string draft_device = "auto";        // of draft models; auto: the target's
  int32_t tensor_parallel_size = 1;         // CUDA devices that share the target
  std::string dtype = "auto";               // auto, bf16, fp16, fp32
  std::string kv_cache_dtype = "auto";      // auto: as dtype; int8
  int32_t threads = 0;                      // 0: the CPUs that the process may use
  int64_t max_model_len = 0;                // 0: the model's context
  // Of texts that a draft model shares blocks with; longer ones it sees through a window.
  int64_t max_prefix_len = 64 << 10;
  int32_t max_num_seqs = 64;
  int32_t max_num_batched_tokens = 512;
  int32_t block_size = 16;
  int32_t kv_blocks = 0;  // 0: from memory
  double memory_utilization = 0.75;
  uint64_t seed = 0;  // of requests without one; 0: drawn from the system
  std::vector<std::string> speculation = {"auto"};  // drafters to choose among; "off": none
  int32_t num_speculative_tokens = -1;              // < 0: 10 with adaptive and window, else 5
  std::vector<int32_t> speculation_tree;            // widths per depth; empty: chains, or
  int32_t speculation_tree_nodes = 0;               // > 0: trees of so many that grow by gain
  std::string draft_length = "adaptive";            // adaptive, window, rate, fixed
  // auto, rejection, coupled, threshold, threshold-literal, typical
  std::string acceptance = "auto";
  float alpha = 1;  // of threshold rules that name none; <= 0: dynamic
  AlphaOptions dynamic_alpha;
  std::string alpha_load = "rows";  // what dynamic alpha takes for load: rows, nvml
  bool prefix_caching = true;
  bool cuda_graphs = true;
  std::string prefill_gemm = "own";  // own, cublas
  int32_t max_queue = 256;
};

}  // namespace pf
