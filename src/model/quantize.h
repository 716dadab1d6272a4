#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "model/model.h"
#include "model/tensor.h"

namespace pf {

inline bool can_quantize(TensorType to) {
  return to == TensorType::kQ4_0 || to == TensorType::kQ4_1 || to == TensorType::kQ8_0;
}

// Quantises n floats to kQ4_0, kQ4_1 or kQ8_0 blocks: for every group the scale (and, for Q4_1, the
// minimum) of least squared error among many candidates, each improved by least squares on its own
// rounding. Never worse than round to nearest over the group's range, never NaN. A group is a block
// of 32, or of the 4-bit types four blocks that get one scale.
// Refuses NaN, infinity and magnitudes above 65504 (a scale is binary16).
// Requires: n is a multiple of the group; `out` holds row_bytes(type, n).
Status quantize_row(TensorType type, const float* x, int64_t n, std::byte* out, int group = 32);

struct QuantizedTensor {
  std::string name;
  TensorType from = TensorType::kF32, to = TensorType::kF32;
  int64_t bytes_before = 0, bytes_after = 0;
  double relative_error = 0;  // RMS of the differences / RMS of the values
};

struct QuantizeReport {
  std::vector<QuantizedTensor> tensors;  // in the order of all_tensors()
  int64_t bytes_before = 0, bytes_after = 0;
};

// Which type each tensor gets. Vectors (norms, biases) become F32; a matrix that already has its
// type is copied; one whose rows are no multiple of 32 becomes F16.
struct QuantizeTypes {
  TensorType layers;    // kQ4_0, kQ4_1 or kQ8_0
  TensorType tables;    // embedding and head
  int int4_group = 32;  // of 4-bit rows; 128: of those that are a multiple of it
};

// A model of its own, with all weights quantised and owned by the result.
Result<Model> quantize_model(const Model& model, QuantizeTypes types, ThreadPool& pool,
                             QuantizeReport* report = nullptr);
inline Result<Model> quantize_model(const Model& model, TensorType type, ThreadPool& pool,
                                    QuantizeReport* report = nullptr) {
  return quantize_model(model, {type, type}, pool, report);
}

// The types of a model written to a file: a draft (no embedding or a reduced vocabulary) is small
// and read whole at every proposed token, so everything gets `type`; another model keeps its
// tables, on which its choice of words rests, at Q8_0.
QuantizeTypes default_types(const Model& model, TensorType type);

// Reads a model or draft in any supported form and writes it as GGUF version 3 with the names and
// the row order of llama.cpp. int4_group 128: blocks share scales by fours, and the file says so;
// other readers need not know. Metadata of a GGUF input (the tokenizer too) is carried over; from a
// Hugging Face folder the configuration is written. The file appears whole or not at all, and never
// in place of its source or of a link. n_threads 0 = one per CPU of this process, which is the most.
Result<QuantizeReport> quantize_file(const std::string& in, const std::string& out, TensorType type,
                                     int n_threads = 0, int int4_group = 32);

}  // namespace pf
