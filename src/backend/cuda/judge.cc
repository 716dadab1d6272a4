#include "backend/cuda/judge.h"

#include <algorithm>

#include "backend/cuda/limits.h"

namespace pf {

using kernels::Accepted;
using kernels::RowLaw;
using kernels::TokenValue;

size_t CudaJudge::Answers::laws_begin() const {
  size_t n = static_cast<size_t>(n_jobs) * sizeof(Accepted) +
             static_cast<size_t>(n_rows * n_top) * sizeof(TokenValue);
  return (n + alignof(RowLaw) - 1) / alignof(RowLaw) * alignof(RowLaw);
}
size_t CudaJudge::Answers::bytes() const {
  return laws_begin() + static_cast<size_t>(watched ? n_rows : 0) * sizeof(RowLaw);
}
Accepted* CudaJudge::Answers::accepted(std::byte* base) const {
  return reinterpret_cast<Accepted*>(base);
}
TokenValue* CudaJudge::Answers::top(std::byte* base) const {
  return reinterpret_cast<TokenValue*>(accepted(base) + n_jobs);
}
RowLaw* CudaJudge::Answers::laws(std::byte* base) const {
  return reinterpret_cast<RowLaw*>(base + laws_begin());
}

CudaJudge::CudaJudge(int64_t vocabulary, const CudaOptions& options, Logits logits,
                     cudaStream_t stream)
    : V_(vocabulary),
      options_(options),
      logits_(std::move(logits)),
      stream_(stream),
      staging_(kJudgeStaging),
      residual_(n_judged_at_once(options) * V_),
      answers_(judge_answer_bytes(options)),
      answers_host_(answers_.bytes()) {
  // Kernels write the places that an answer has; one copy fetches all.
  cuda_check(cudaMemsetAsync(answers_.as(), 0, answers_.bytes(), stream_));
}

int64_t CudaJudge::scratch_bytes() const {
  return static_cast<int64_t>(staging_.bytes() + residual_.bytes() + q_.bytes() + answers_.bytes());
}

void CudaJudge::accept(const Batch& batch, std::span<const AcceptJob> jobs,
                       std::span<AcceptResult> results) {
  if (jobs.empty()) return;
  const Answers answers = gather(batch, jobs);
  const Sent sent = send();
  for (const HeadChunk& chunk : chunks_) launch(chunk, sent, answers);
  cuda_check(cudaMemcpyAsync(answers_host_.data(), answers_.as(), answers.bytes(),
                             cudaMemcpyDeviceToHost, stream_));
  cuda_check(cudaStreamSynchronize(stream_));

  const Accepted* accepted = answers.accepted(answers_host_.data());
  std::span<const TokenValue> top{answers.top(answers_host_.data()),
                                  static_cast<size_t>(answers.n_rows * answers.n_top)};
  const RowLaw* laws = answers.laws(answers_host_.data());
  for (size_t j = 0; j < jobs.size(); ++j) {
    const int32_t first = first_rows_[j];
    to_result(accepted[j], jobs[j].input, first, top, answers.n_top, V_, &results[j]);
    watched_of(jobs[j].input, laws + first, &results[j].argmax);
  }
}

CudaJudge::Answers CudaJudge::gather(const Batch& batch, std::span<const AcceptJob> jobs) {
  rules_.clear();
  job_trees_.clear();
  logit_rows_.clear();
  row_sequence_.clear();
  first_rows_.clear();
  chunks_.clear();
  auto segment_of = [&](size_t j) -> const Segment& {
    return batch.segments[static_cast<size_t>(jobs[j].segment)];
  };
  Answers answers;
  auto add = [&](size_t j, const HeadChunk& chunk) {
    const AcceptInput& in = jobs[j].input;
    const int32_t first = batch.first_logit_row(segment_of(j)),
                  n = Batch::n_logit_rows(segment_of(j));
    first_rows_.push_back(static_cast<int32_t>(logit_rows_.size()));
    rules_.add(in, first_rows_.back() - static_cast<int32_t>(chunk.first_row));
    for (int32_t r = 0; r < n; ++r) logit_rows_.push_back(first + r);
    row_sequence_.insert(row_sequence_.end(), static_cast<size_t>(n),
                         static_cast<int32_t>(j - chunk.first));
    job_trees_.push_back(in.tree);
    answers.watched |= in.watched != 0;
    if (in.want_logprobs) answers.n_top = std::max(answers.n_top, in.n_top_logprobs);
  };
  each_head_chunk(
      options_, jobs.size(), [&](size_t j) { return Batch::n_logit_rows(segment_of(j)); },
      [&](const HeadChunk& chunk) {
        chunks_.push_back(chunk);
        for (size_t j = chunk.first; j < chunk.end; ++j) add(j, chunk);
      });
  trees_.assign(job_trees_);
  answers.n_jobs = static_cast<int64_t>(jobs.size());
  answers.n_rows = static_cast<int64_t>(logit_rows_.size());
  check(answers.n_top <= kMaxListedTop, "more likeliest tokens wanted than there is room for");
  check(answers.n_rows <= n_max_rows(options_), "more rows to judge than a pass has");
  return answers;
}

CudaJudge::Sent CudaJudge::send() {
  staging_.begin();
  Sent sent;
  sent.rows = staging_.put<int32_t>(logit_rows_);
  sent.row_sequence = staging_.put<int32_t>(row_sequence_);
  sent.sampling = staging_.put<kernels::SamplingRules>(rules_.sampling);
  sent.accept = staging_.put<kernels::AcceptRules>(rules_.accept);
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
  sent.lists = {staging_.at(counts), staging_.at(biases), staging_.at(ends)};
  sent.trees = {staging_.at(n_nodes), staging_.at(n_entries), staging_.at(tokens),
                staging_.at(parents), staging_.at(depths),    staging_.at(q_begin),
                staging_.at(q_end),   staging_.at(scores),    staging_.at(q),
                trees_.q_capacity};
  const int64_t q_size = n_judged_at_once(options_) * int64_t{trees_.q_capacity};
  if (q_.size() < q_size) q_ = DeviceBuffer<TokenValue>(q_size);
  return sent;
}

void CudaJudge::launch(const HeadChunk& chunk, const Sent& sent, const Answers& answers) {
  const int64_t B = chunk.n_sequences(), R = chunk.n_rows, row = chunk.first_row;
  const auto job = static_cast<int64_t>(chunk.first);
  const auto sampling = staging_.view(sent.sampling).rows(job, B);
  const auto accept = staging_.view(sent.accept).rows(job, B);
  const kernels::DraftTrees trees = kernels::trees_behind(sent.trees, job);
  std::byte* base = answers_.as<std::byte>();
  View<float, 2> logits =
      logits_(staging_.view(sent.rows).rows(row, R),
              std::span(logit_rows_).subspan(static_cast<size_t>(row), static_cast<size_t>(R)));
  View<RowLaw, 1> laws{answers.laws(base) + row, {R}};
  kernels::make_laws(laws, {answers.top(base) + row * answers.n_top, {R, answers.n_top}}, logits,
                     staging_.view(sent.row_sequence).rows(row, R), sampling, accept, sent.lists,
                     trees, stream_);
  kernels::accept({answers.accepted(base) + job, {B}}, {residual_.data(), {B, V_}},
                  {q_.data(), {B, trees_.q_capacity}}, logits, laws, sampling, accept, sent.lists,
                  trees, stream_);
}

void CudaJudge::score(std::span<const ScoreJob> jobs, std::span<TokenLogprob> results) {
  if (jobs.empty()) return;
  const auto n = static_cast<int64_t>(jobs.size());
  int32_t n_top = 0;
  logit_rows_.clear();
  known_.clear();
  for (const ScoreJob& job : jobs) {
    logit_rows_.push_back(job.logit_row);
    known_.push_back(job.token);
    n_top = std::max(n_top, job.n_top);
  }
  check(n_top <= kMaxListedTop, "more likeliest tokens wanted than there is room for");
  check(n <= n_max_rows(options_), "more tokens to score than a pass has rows");
  staging_.begin();
  auto rows = staging_.put<int32_t>(logit_rows_), tokens = staging_.put<int32_t>(known_);
  staging_.send(stream_);
  // Answers: log-probabilities [n], and behind them, aligned, the likeliest [n, n_top].
  const size_t top_begin = static_cast<size_t>(n + n % 2) * sizeof(float),
               bytes = top_begin + static_cast<size_t>(n * n_top) * sizeof(TokenValue);
  auto top_of = [&](std::byte* base) { return reinterpret_cast<TokenValue*>(base + top_begin); };
  for (int64_t first = 0; first < n; first += options_.head_chunk_rows) {
    const int64_t R = std::min<int64_t>(n - first, options_.head_chunk_rows);
    const View<float, 2> logits =
        logits_(staging_.view(rows).rows(first, R),
                std::span(logit_rows_).subspan(static_cast<size_t>(first), static_cast<size_t>(R)));
    kernels::score_tokens({answers_.as<float>() + first, {R}},
                          {top_of(answers_.as()) + first * n_top, {R, n_top}}, logits,
                          staging_.view(tokens).rows(first, R), stream_);
  }
  cuda_check(
      cudaMemcpyAsync(answers_host_.data(), answers_.as(), bytes, cudaMemcpyDeviceToHost, stream_));
  cuda_check(cudaStreamSynchronize(stream_));
  const auto* got = reinterpret_cast<const float*>(answers_host_.data());
  const TokenValue* top = top_of(answers_host_.data());
  for (size_t i = 0; i < jobs.size(); ++i, top += n_top) {
    results[i].logprob = got[i];
    results[i].top.clear();
    for (int32_t t = 0; t < std::min<int64_t>(jobs[i].n_top, V_); ++t)
      results[i].top.push_back({top[t].token, top[t].value});
  }
}

}  // namespace pf
