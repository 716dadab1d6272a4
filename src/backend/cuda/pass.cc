#include "backend/cuda/pass.h"

#include <algorithm>

#include "base/check.h"

namespace pf {
namespace {

// The values, then as many of `padding` as the part has room for.
template <class T>
void write(Staging* staging, Staging::Part<T> part, std::span<const T> values, T padding) {
  std::span<T> to = staging->host(part);
  std::fill(std::copy(values.begin(), values.end(), to.begin()), to.end(), padding);
}

}  // namespace

kernels::AttentionWork Pass::work(const Attention& plan, const Staging& staging) const {
  return {staging.at(plan.counts),
          staging.base<kernels::AttentionItem>(),
          staging.base<kernels::AttentionRun>(),
          staging.base<kernels::AttentionItemRow>(),
          staging.at(plan.row_parts),
          staging.base<int32_t>(),
          staging.at(positions),
          staging.at(masks),
          plan.first_row};
}

void PassWriter::place(int64_t T, int64_t R, Staging* staging, Pass* pass) {
  pass->T = T;
  pass->R = R;
  for (Staging::Part<int32_t>* part : {&pass->tokens, &pass->positions, &pass->places})
    *part = staging->make<int32_t>(T);
  pass->masks = staging->make<uint64_t>(T);
  pass->logit_rows = staging->make<int32_t>(R);
  pass->attention.clear();
  pass->attention.push_back({0, 0, staging->make<kernels::AttentionWork::Counts>(1),
                             staging->make<kernels::AttentionRowParts>(T)});
}

void PassWriter::fill(const Batch& batch, Staging* staging, Pass* pass, const Pass* before) {
  const int32_t n = batch.n_rows();
  check(n <= pass->T && static_cast<int64_t>(batch.logit_rows.size()) <= pass->R,
        "a pass has more rows than places");
  write<int32_t>(staging, pass->tokens, batch.tokens, -1);
  write<int32_t>(staging, pass->positions, batch.positions, 0);
  write<uint64_t>(staging, pass->masks, batch.masks, 0);
  write<int32_t>(staging, pass->logit_rows, batch.logit_rows, -1);
  write<int32_t>(staging, pass->places, {}, -1);
  for (size_t r = 0; r < batch.slots.size(); ++r)
    staging->host(pass->places)[r] = place_of(
        batch.segments[static_cast<size_t>(batch.row_segment[r])], batch.slots[r], block_tokens_);

  segments_.clear();
  for (const Segment& s : batch.segments) segments_.push_back({s.first_row, s.n_rows, s.blocks});
  kernels::AttentionRows rows{batch.positions, batch.visible, batch.masks, segments_};
  for (int32_t first = 0; first < n;) {
    if (first > 0)
      pass->attention.push_back({0, 0, staging->make<kernels::AttentionWork::Counts>(1),
                                 staging->make<kernels::AttentionRowParts>(pass->T - first)});
    Pass::Attention& plan = pass->attention.back();
    plan.first_row = first;
    plan.end_row = first = plan_.build(rows, first);
    put_plan(staging, plan, plan.first_row == 0 ? before : nullptr, pass);
  }
  pass->attention.back().end_row = static_cast<int32_t>(pass->T);
}

// The plan's lists point into each other; here they point into the staging.
void PassWriter::put_plan(Staging* staging, const Pass::Attention& at, const Pass* before,
                          Pass* pass) {
  auto items = staging->put(plan_.items());
  auto runs = staging->put(plan_.runs());
  auto item_rows = staging->put(plan_.item_rows());
  Staging::Part<int32_t> tables;
  const std::span<const int32_t> wanted = plan_.tables();
  if (before != nullptr && before->tables.n >= static_cast<int64_t>(wanted.size()) &&
      std::equal(wanted.begin(), wanted.end(), staging->host(before->tables).begin()))
    tables = before->tables;
  else
    tables = staging->put(wanted);
  if (at.first_row == 0) pass->tables = tables;

  for (kernels::AttentionItem& item : staging->host(items)) {
    item.first_row += Staging::index(item_rows);
    item.first_run += Staging::index(runs);
  }
  for (kernels::AttentionRun& run : staging->host(runs)) run.table += Staging::index(tables);
  staging->host(at.counts)[0] = {static_cast<int32_t>(plan_.items().size()), plan_.unit_tokens(),
                                 Staging::index(items), plan_.first_position()};
  write<kernels::AttentionRowParts>(staging, at.row_parts, plan_.row_parts(), {});
}

}  // namespace pf
