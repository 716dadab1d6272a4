#include "backend/cuda/judge.h"

#include <algorithm>

#include "backend/cuda/limits.h"

namespace pf {

using kernels::Accepted;
using kernels::RowLaw;
using kernels::TokenValue;

namespace {

// Bytes of the answers in front of the laws.
size_t laws_begin(int64_t n_jobs, int64_t n_rows, int32_t n_top) {
  size_t n = static_cast<size_t>(n_jobs) * sizeof(Accepted) +
             static_cast<size_t>(n_rows * n_top) * sizeof(TokenValue);
  return (n + alignof(RowLaw) - 1) / alignof(RowLaw) * alignof(RowLaw);
}

}  // namespace

CudaJudge::CudaJudge(int64_t vocabulary, const CudaOptions& options, Logits logits,
                     cudaStream_t stream)
    : V_(vocabulary),
      chunk_rows_(options.head_chunk_rows),
      logits_(std::move(logits)),
      stream_(stream),
      staging_(kJudgeStaging),
      residual_(chunk_rows_ * V_),
      answers_(static_cast<size_t>(chunk_rows_) *
                   (sizeof(Accepted) + kMaxListedTop * sizeof(TokenValue) + sizeof(RowLaw)) +
               alignof(RowLaw)),
      answers_host_(answers_.bytes()) {
  // Kernels write the places that an answer has; one copy fetches all.
  cuda_check(cudaMemsetAsync(answers_.as(), 0, answers_.bytes(), stream_));
}

int64_t CudaJudge::scratch_bytes() const {
  return static_cast<int64_t>(staging_.bytes() + residual_.bytes() + q_.bytes() + answers_.bytes());
}

void CudaJudge::accept(const Batch& batch, std::span<const AcceptJob> jobs,
                       std::span<AcceptResult> results) {
  for (size_t first = 0; first < jobs.size();) {
    size_t end = first;
    int32_t n = 0;
    for (; end < jobs.size(); ++end) {
      int32_t more = Batch::n_logit_rows(batch.segments[static_cast<size_t>(jobs[end].segment)]);
      if (n + more > chunk_rows_) break;
      n += more;
    }
    check(end > first, "a tree has more rows than there is room for");
    accept_chunk(batch, jobs.subspan(first, end - first), results.subspan(first, end - first));
    first = end;
  }
}

void CudaJudge::accept_chunk(const Batch& batch, std::span<const AcceptJob> jobs,
                             std::span<AcceptResult> results) {
  rules_.clear();
  job_trees_.clear();
  logit_rows_.clear();
  row_sequence_.clear();
  int32_t n_top = 0;
  bool watched = false;
  for (const AcceptJob& job : jobs) {
    const Segment& s = batch.segments[static_cast<size_t>(job.segment)];
    const int32_t first = batch.first_logit_row(s), n = Batch::n_logit_rows(s);
    rules_.add(job.input, static_cast<int32_t>(logit_rows_.size()));
    for (int32_t r = 0; r < n; ++r) logit_rows_.push_back(first + r);
    row_sequence_.insert(row_sequence_.end(), static_cast<size_t>(n),
                         static_cast<int32_t>(job_trees_.size()));
    job_trees_.push_back(job.input.tree);
    watched |= job.input.watched != 0;
    if (job.input.want_logprobs) n_top = std::max(n_top, job.input.n_top_logprobs);
  }
  check(n_top <= kMaxListedTop, "more likeliest tokens wanted than there is room for");
  trees_.assign(job_trees_);
  const auto n_rows = static_cast<int64_t>(logit_rows_.size());
  launch(n_rows, n_top);
  fetch(watched, static_cast<int64_t>(jobs.size()), n_rows, n_top);
  const auto* accepted = reinterpret_cast<const Accepted*>(answers_host_.data());
  std::span top{reinterpret_cast<const TokenValue*>(accepted + jobs.size()),
                static_cast<size_t>(n_rows * n_top)};
  const auto* laws = reinterpret_cast<const RowLaw*>(
      answers_host_.data() + laws_begin(static_cast<int64_t>(jobs.size()), n_rows, n_top));
  for (size_t j = 0; j < jobs.size(); ++j) {
    int32_t first = rules_.accept[j].first_row;
    to_result(accepted[j], jobs[j].input, first, top, n_top, V_, &results[j]);
    watched_of(jobs[j].input, laws + first, &results[j].argmax);
  }
}

void CudaJudge::launch(int64_t n_rows, int32_t n_top) {
  const auto B = static_cast<int64_t>(rules_.sampling.size());
  if (q_.size() < B * trees_.q_capacity) q_ = DeviceBuffer<TokenValue>(B * trees_.q_capacity);
  staging_.begin();
  auto rows = staging_.put<int32_t>(logit_rows_), sequence = staging_.put<int32_t>(row_sequence_);
  auto sampling = staging_.put<kernels::SamplingRules>(rules_.sampling);
  auto accept = staging_.put<kernels::AcceptRules>(rules_.accept);
  auto counts = staging_.put<kernels::TokenCount>(rules_.counts);
  auto biases = staging_.put<TokenValue>(rules_.biases);
  auto ends = staging_.put<int32_t>(rules_.end_ids);
  auto n_nodes = staging_.put<int32_t>(trees_.n_nodes),
       n_entries = staging_.put<int32_t>(trees_.n_entries),
       tokens = staging_.put<int32_t>(trees_.tokens),
       parents = staging_.put<int32_t>(trees_.parents),
       depths = staging_.put<int32_t>(trees_.depths),
       q_begin = staging_.put<int32_t>(trees_.q_begin), q_end = staging_.put<int32_t>(trees_.q_end);
  auto scores = staging_.put<float>(trees_.scores);
  auto q = staging_.put<TokenValue>(trees_.q);
  staging_.send(stream_);
  kernels::DraftTrees trees{staging_.at(n_nodes), staging_.at(n_entries), staging_.at(tokens),
                            staging_.at(parents), staging_.at(depths),    staging_.at(q_begin),
                            staging_.at(q_end),   staging_.at(scores),    staging_.at(q),
                            trees_.q_capacity};
  kernels::RuleLists lists{staging_.at(counts), staging_.at(biases), staging_.at(ends)};
  View<float, 2> logits = logits_(staging_.view(rows), logit_rows_);
  auto* accepted = answers_.as<Accepted>();
  View<TokenValue, 2> top{reinterpret_cast<TokenValue*>(accepted + B), {n_rows, n_top}};
  View<RowLaw, 1> laws{
      reinterpret_cast<RowLaw*>(answers_.as<std::byte>() + laws_begin(B, n_rows, n_top)), {n_rows}};
  kernels::make_laws(laws, top, logits, staging_.view(sequence), staging_.view(sampling),
                     staging_.view(accept), lists, trees, stream_);
  kernels::accept({accepted, {B}}, {residual_.data(), {B, V_}}, {q_.data(), {B, trees_.q_capacity}},
                  logits, laws, staging_.view(sampling), staging_.view(accept), lists, trees,
                  stream_);
}

void CudaJudge::fetch(bool laws, int64_t n_jobs, int64_t n_rows, int32_t n_top) {
  size_t bytes =
      laws_begin(n_jobs, n_rows, n_top) + static_cast<size_t>(laws ? n_rows : 0) * sizeof(RowLaw);
  cuda_check(
      cudaMemcpyAsync(answers_host_.data(), answers_.as(), bytes, cudaMemcpyDeviceToHost, stream_));
  cuda_check(cudaStreamSynchronize(stream_));
}

void CudaJudge::score(std::span<const ScoreJob> jobs, std::span<TokenLogprob> results) {
  for (size_t first = 0; first < jobs.size();) {
    const size_t n = std::min(jobs.size() - first, static_cast<size_t>(chunk_rows_));
    int32_t n_top = 0;
    logit_rows_.clear();
    known_.clear();
    for (const ScoreJob& job : jobs.subspan(first, n)) {
      logit_rows_.push_back(job.logit_row);
      known_.push_back(job.token);
      n_top = std::max(n_top, job.n_top);
    }
    check(n_top <= kMaxListedTop, "more likeliest tokens wanted than there is room for");
    staging_.begin();
    auto rows = staging_.put<int32_t>(logit_rows_), tokens = staging_.put<int32_t>(known_);
    staging_.send(stream_);
    const auto R = static_cast<int64_t>(n);
    auto* logprobs = answers_.as<float>();
    auto* top = reinterpret_cast<TokenValue*>(logprobs + chunk_rows_ + chunk_rows_ % 2);
    kernels::score_tokens({logprobs, {R}}, {top, {R, n_top}},
                          logits_(staging_.view(rows), logit_rows_), staging_.view(tokens),
                          stream_);
    size_t bytes = static_cast<size_t>(reinterpret_cast<std::byte*>(top + R * n_top) -
                                       answers_.as<std::byte>());
    cuda_check(cudaMemcpyAsync(answers_host_.data(), answers_.as(), bytes, cudaMemcpyDeviceToHost,
                               stream_));
    cuda_check(cudaStreamSynchronize(stream_));
    const auto* got = reinterpret_cast<const float*>(answers_host_.data());
    const auto* got_top = reinterpret_cast<const TokenValue*>(got + chunk_rows_ + chunk_rows_ % 2);
    for (size_t i = 0; i < n; ++i) {
      TokenLogprob& out = results[first + i];
      out.logprob = got[i];
      out.top.clear();
      for (int32_t t = 0; t < std::min<int64_t>(jobs[first + i].n_top, V_); ++t) {
        const TokenValue& v = got_top[static_cast<int64_t>(i) * n_top + t];
        out.top.push_back({v.token, v.value});
      }
    }
    first += n;
  }
}

}  // namespace pf
