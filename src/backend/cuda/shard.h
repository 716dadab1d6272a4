#pragma once

#include <cstdint>

#include "base/status.h"
#include "model/model.h"

namespace pf {

// How a target's weights are divided over n devices ("ranks"), so that each computes with its own
// part as a model of its own would (tensor parallelism, Shoeybi et al. 2019):
//
//   q, k, v, gate, up   rows: whole heads, with all that reads them; feed-forward features
//   o, down             the columns that those features meet: each rank gets a share of the sum
//   head                rows: a stretch of the vocabulary, as long on every rank; the last
//   stretches
//                       overlap where it does not divide, and the same logit is computed twice
//   embedding, norms    whole on every rank: their rows are read, not multiplied, and a share of
//                       them would cost every pass another exchange between the devices
//
// With more ranks than KV heads a KV head is held by several of them, each with its own queries.
struct Shard {
  int32_t rank = 0, n = 1;
};

// Refuses a number of devices that these shapes cannot be divided by, and names those that are
// possible. int4: the weights will be packed in groups of 32.
Status check_shards(const Model& model, int32_t n, bool int4);

// The parts of one rank. Requires: check_shards. They borrow from what they are parts of; columns
// are copied into `storage`, or, where that is null, are shapes that must not be read.
ModelConfig shard_config(const ModelConfig& config, const Shard& shard);
LayerWeights shard_layer(const LayerWeights& layer, const ModelConfig& config, const Shard& shard,
                         ModelStorage* storage);
Tensor shard_head(const Tensor& head, const Shard& shard);
int64_t first_head_row(int64_t head_rows, const Shard& shard);

// All of it, in shapes: for plans.
Model shard_shapes(const Model& model, const Shard& shard);

}  // namespace pf
