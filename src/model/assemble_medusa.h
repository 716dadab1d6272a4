#pragma once

#include <string_view>
#include <vector>

#include "model/model.h"

namespace pf {

// Medusa heads as they are published (Cai et al. 2024, "Medusa-1"): head i has blocks
// i.j.linear.weight [E, E] and i.j.linear.bias [E] for j = 0, 1, ..., and i.J.weight [V, E] behind
// them; each name may begin with "medusa_head.". config.json may say medusa_num_heads and
// medusa_num_layers (J); what the file has besides counts too. The message lists all that is
// missing, and all of another shape.
Result<Model> assemble_medusa(std::vector<Tensor> tensors, std::string_view config_json,
                              ModelStorage storage);

// Whether a config.json is one of Medusa heads.
bool is_medusa_config(std::string_view config_json);

// What such heads are in, beside config.json.
inline constexpr const char* kMedusaFile = "medusa_lm_head.safetensors";

}  // namespace pf
