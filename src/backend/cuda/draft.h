#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/draft_jobs.h"
#include "backend/cuda/forward.h"
#include "backend/cuda/rules.h"
#include "backend/draft_levels.h"
#include "kernels/draft.h"

namespace pf {

// Drafts for several sequences on the device. The levels (list, grow, feed back, forward) of
// chains, or of trees of the same widths, are one graph behind the pass over the committed tokens,
// and come back in one copy. Drafts of several shapes at once, trees that grow by gain, and
// trees too wide for one pass go level by level through the host (draft_levels.h).
template <class A>
class CudaDraft {
 public:
  // graphs: null: launch by launch.
  CudaDraft(const CudaModel<A>& model, const CudaOptions& options, CudaForward<A>* forward,
            Graphs* graphs, cudaStream_t stream);

  // Trees in the jobs' order, cleared first. n_layers: the model's first so many only; 0: all.
  void propose(std::span<const ProposeJob> jobs, std::span<DraftTree> trees, int64_t n_layers = 0);
  int64_t scratch_bytes() const;

 private:
  // What the launches of a draft read besides its passes, in staging_; fixed places for B
  // sequences.
  struct Rules {
    Staging::Part<kernels::SamplingRules> sampling;
    Staging::Part<kernels::GrowRules> grow;
    Staging::Part<int32_t> roots;               // open at first
    Staging::Part<int32_t> slots, first_block;  // of trees (kernels/place_nodes.h)
  };
  // A level has `places` open nodes to a sequence and grows `width` children to each.
  struct Level {
    int32_t places = 1, width = 1, next_places = 1;
  };
  struct ChainOps;  // of draft_jobs.h
  // n trees in one stretch of memory, so that one copy fetches them.
  struct Layout {
    int64_t n = 0;
    int32_t q_capacity = 0;
    size_t bytes() const;
    kernels::DraftTrees at(std::byte* base) const;
    void read(const std::byte* base, int64_t b, DraftTree* tree) const;
  };

  void grow_chains(std::span<const ProposeJob> jobs, std::span<DraftTree> trees);
  // False: not these, or not all of their levels; the host does it.
  bool grow_trees(std::span<const ProposeJob> jobs, std::span<DraftTree> trees);
  bool find_levels();
  void run_committed(int64_t n_logit_rows);
  // Everything that the levels read, B rows to a level of chains (0: those that there are).
  void stage_chains(int64_t B);
  void stage_trees(int64_t B);
  void add_nodes(const ProposeJob& job, int32_t depth, int32_t n);
  void place_rules(int64_t B);
  void write_rules();
  void issue_trees(const Layout& layout);
  // No nodes and entries yet; places that stay unused are fetched too.
  void clear_trees(const Layout& layout);
  // Of the open nodes of a level, n from `first` on.
  void list_open(int32_t depth, int64_t first, int64_t n);
  void grow(const Layout& layout, int32_t depth, int32_t max_nodes, int64_t B, const Level& level);
  const int32_t* open_at(int32_t depth) const {
    return depth == 1 ? staging_.at(placed_.roots) : open_[depth % 2].data();
  }
  void fetch(const Layout& layout, std::span<DraftTree> trees);
  DraftLevels::Device level_device();
  // The likeliest tokens of logits [n, head_rows] to rows [first, first + n) of candidates_.
  void list(int64_t first, View<float, 2> logits, const int32_t* open);
  void list_on_host(std::span<const int32_t> rows, std::span<std::vector<TokenProbability>> out);

  const CudaModel<A>& model_;
  const int32_t chunk_rows_, top_n_, max_rows_, block_tokens_;
  CudaForward<A>* forward_;
  Graphs* const graphs_;
  const cudaStream_t stream_;

  int64_t n_layers_ = 0;  // of the present call
  DraftLevels levels_;
  Batch batch_;
  std::vector<HiddenRef> hidden_;  // a head's: by row of batch_
  DraftJobs jobs_;                 // of the present call
  DeviceRules rules_;
  Rules placed_;
  Staging staging_;
  std::vector<Pass> passes_;                      // of levels 2 and on
  std::vector<Level> tree_levels_;                // of trees
  int32_t n_nodes_ = 0, widest_ = 0;              // of a full tree of these levels
  bool runs_all_levels_ = false;                  // not only those that a full tree needs
  DeviceBuffer<kernels::TokenValue> candidates_;  // [max_rows, top_n]
  DeviceBuffer<kernels::TokenValue> slices_;      // scratch of the listing
  DeviceBuffer<int32_t> n_listed_;                // [max_rows]
  DeviceBuffer<int32_t> all_open_;                // [chunk] zeros: every place is in use
  DeviceBuffer<int32_t> open_[2];                 // [max_rows] of odd levels and of even ones
  DeviceBuffer<int32_t> tokens_;                  // [max_rows] of the next level
  DeviceMemory trees_;
  PinnedMemory host_;
};

}  // namespace pf
