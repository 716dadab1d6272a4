#pragma once

#include <algorithm>
#include <span>

#include "kernels/attention.h"
#include "kernels/device_array.h"

namespace pf::kernels {

// A plan's arrays on the device, with room for another plan of at most `room` entries each.
class Uploaded {
 public:
  explicit Uploaded(const AttentionPlan& plan, size_t room = 0)
      : counts_(1),
        items_(std::max(room, plan.items().size())),
        runs_(std::max(room, plan.runs().size())),
        item_rows_(std::max(room, plan.item_rows().size())),
        row_parts_(std::max(room, plan.row_parts().size())),
        tables_(std::max(room, plan.tables().size())) {
    upload(plan);
  }
  void upload(const AttentionPlan& plan) {
    AttentionWork::Counts counts{static_cast<int32_t>(plan.items().size()), plan.unit_tokens(), 0,
                                 plan.first_position()};
    copy(counts_, std::span<const AttentionWork::Counts>(&counts, 1));
    copy(items_, plan.items());
    copy(runs_, plan.runs());
    copy(item_rows_, plan.item_rows());
    copy(row_parts_, plan.row_parts());
    copy(tables_, plan.tables());
  }
  AttentionWork work(const DeviceArray<int32_t>& positions,
                     const DeviceArray<uint64_t>& masks) const {
    return {counts_.data(),    items_.data(),  runs_.data(),     item_rows_.data(),
            row_parts_.data(), tables_.data(), positions.data(), masks.data()};
  }

 private:
  template <class U>
  static void copy(const DeviceArray<U>& to, std::span<const U> from) {
    cuda_check(cudaMemcpy(to.data(), from.data(), from.size_bytes(), cudaMemcpyHostToDevice));
  }
  DeviceArray<AttentionWork::Counts> counts_;
  DeviceArray<AttentionItem> items_;
  DeviceArray<AttentionRun> runs_;
  DeviceArray<AttentionItemRow> item_rows_;
  DeviceArray<AttentionRowParts> row_parts_;
  DeviceArray<int32_t> tables_;
};

}  // namespace pf::kernels
