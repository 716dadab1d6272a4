#include "backend/cuda/head_input.h"

#include <algorithm>

#include "backend/cuda/limits.h"
#include "kernels/gather_rows.h"
#include "kernels/join_features.h"

namespace pf {

template <class A>
CudaHeadInput<A>::CudaHeadInput(const CudaModel<A>& model, const CudaOptions& options,
                                int32_t max_rows, cudaStream_t stream)
    : model_(model),
      states_(model.takes_hidden() ? options.hidden_of : HiddenStates{}),
      n_blocks_(model.takes_hidden() ? options.n_blocks : 0),
      max_rows_(model.takes_hidden() ? max_rows : 0),
      stream_(stream),
      kept_(n_blocks_ * states_.width),
      joined_(max_rows_ * 2 * model.E),
      features_(model.head_kind == HeadKind::kEagle3 ? max_rows_ * states_.width : 0),
      staging_(model.takes_hidden() ? kHiddenStaging : 0) {}

template <class A>
int64_t CudaHeadInput<A>::bytes() const {
  return static_cast<int64_t>(joined_.bytes() + features_.bytes() + staging_.bytes());
}

template <class A>
void CudaHeadInput<A>::place(Staging* staging, Pass* pass) const {
  if (!model_.takes_hidden()) return;
  pass->hidden.states = staging->make<int32_t>(pass->T);
  if (model_.head_kind == HeadKind::kEagle3) pass->hidden.own = staging->make<int32_t>(pass->T);
}

template <class A>
void CudaHeadInput<A>::fill(std::span<const HiddenRef> hidden, Staging* staging, Pass* pass) const {
  if (!model_.takes_hidden()) return;
  Pass::Hidden& to = pass->hidden;
  const bool eagle3 = model_.head_kind == HeadKind::kEagle3;
  std::span<int32_t> states = staging->host(to.states), own = staging->host(to.own);
  std::fill(states.begin(), states.end(), -1);
  if (eagle3) std::fill(own.begin(), own.end(), -1);
  to.has_own = to.has_other = false;
  const auto n_target = static_cast<int32_t>(states_.rows),
             n_kept = static_cast<int32_t>(n_blocks_);
  for (size_t r = 0; r < hidden.size(); ++r) {
    const HiddenRef ref = hidden[r];
    const bool is_own = ref.in == HiddenRef::In::kOwn;
    (is_own ? to.has_own : to.has_other) = true;
    if (!is_own)
      states[r] = ref.index + (ref.in == HiddenRef::In::kBlock ? n_target : 0);
    else if (eagle3)
      own[r] = ref.index;
    else
      states[r] = n_target + n_kept + ref.index;
  }
}

template <class A>
void CudaHeadInput<A>::run(View<float, 2> residual, const int32_t* tokens, const Pass& pass,
                           const Staging& staging, View<const int32_t, 1> iota, Own own) {
  const int64_t T = residual.shape[0], E = model_.E;
  View<A, 2> joined{joined_.data(), {T, 2 * E}};
  auto join = [&](const auto& states, const int32_t* index) {
    kernels::join_features(joined, embedding(), {tokens, {T}}, states, {index, {T}},
                           model_.embedding_norm.data(), model_.hidden_norm.data(), model_.epsilon,
                           stream_);
  };
  const kernels::GemmEpilogue bias{.bias = model_.fc_bias.data(), .add = false};
  if (model_.head_kind == HeadKind::kEagle) {
    const View<const A, 2> states[] = {
        target_states(), kept_states(), {own.hidden, {max_rows_, E}}};
    join(states, staging.at(pass.hidden.states));
    multiply(residual, View<const A, 2>(joined), model_.fc, bias, stream_);
    return;
  }
  const View<const float, 2> own_states{own.residual, {max_rows_, E}};
  const View<const int32_t, 1> own_rows = staging.view(pass.hidden.own);
  if (pass.hidden.has_other) {
    View<A, 2> features{features_.data(), {T, states_.width}};
    const View<const A, 2> states[] = {
        target_states(), kept_states(), {nullptr, {0, states_.width}}};
    kernels::gather_joined(features, states, staging.view(pass.hidden.states), stream_);
    multiply(residual, View<const A, 2>(features), model_.fc, bias, stream_);
    if (pass.hidden.has_own)
      kernels::copy_rows<float, float>(residual, own_states, own_rows, iota, stream_);
  } else {
    kernels::gather_rows<float, float>(residual, own_states, own_rows, stream_);
  }
  const View<const float, 2> states[] = {residual, {nullptr, {0, E}}, {nullptr, {0, E}}};
  join(states, nullptr);
}

template <class A>
void CudaHeadInput<A>::keep(std::span<const HiddenKeep> keeps) {
  from_.clear();
  to_.clear();
  for (HiddenKeep k : keeps) {
    from_.push_back(k.row);
    to_.push_back(k.block);
  }
  copy_to_kept(target_states());
}

template <class A>
void CudaHeadInput<A>::copy_blocks(std::span<const BlockCopy> copies) {
  if (!model_.takes_hidden()) return;
  from_.clear();
  to_.clear();
  for (BlockCopy c : copies) {
    from_.push_back(c.from);
    to_.push_back(c.to);
  }
  copy_to_kept(kept_states());
}

template <class A>
void CudaHeadInput<A>::copy_to_kept(View<const A, 2> from) {
  staging_.begin();
  auto source = staging_.put<int32_t>(from_), place = staging_.put<int32_t>(to_);
  staging_.send(stream_);
  kernels::copy_rows<A, A>(kept_states(), from, staging_.view(source), staging_.view(place),
                           stream_);
}

template class CudaHeadInput<f16>;
template class CudaHeadInput<bf16>;

}  // namespace pf
