#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/status.h"
#include "model/model.h"

namespace pf {

// Names of the shapes that can be made without a file: "smollm2-135m", "tinyllama-1.1b", "tiny".
std::vector<std::string> synthetic_names();

// A Llama-like model of that shape with random weights in the storage type that packs into
// `weights` as it is (BF16, Q8_0, Q4_1), a function of the seed: speed does not depend on what the
// weights say. Refuses an unknown name.
Result<Model> synthetic_model(const std::string& name, CpuOptions::Weights weights, uint64_t seed);

// A synthetic model by name, else the file or folder of that path. Errors name it.
Result<Model> open_model(const std::string& name_or_path, CpuOptions::Weights weights);

// Whether it is there and can run by itself, at the price of its header: for those who measure
// something else first.
Status check_model(const std::string& name_or_path);

// What tables call it: the synthetic name, or the file's without folder and ending.
std::string short_name(const std::string& name_or_path);

Result<CpuOptions::Weights> weights_of(const std::string& dtype);  // fp32, bf16, int8, int4

}  // namespace pf
