// Truth: each node's slot and ancestors, worked out with plain loops from random trees.
#include "kernels/place_nodes.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/budget.h"
#include "kernels/device_array.h"
#include "ptxvm/ptxvm.h"

namespace pf::kernels {
namespace {

constexpr int P = 8;

class PlaceNodes : public testing::Test {
 protected:
  void TearDown() override {
    for (const auto& f : ptxvm::take_findings()) ADD_FAILURE() << ptxvm::to_text(f);
  }
};

void run_case(int B, int W, uint32_t seed) {
  std::mt19937 rng(seed);
  auto below = [&](int n) { return static_cast<int32_t>(rng() % static_cast<uint32_t>(n)); };
  std::vector<int32_t> parents, slots, first, tables, open;
  for (int b = 0; b < B; ++b) {
    for (int i = 0; i < kMaxNodes; ++i) parents.push_back(below(i + 1) - 1);
    slots.push_back(below(100));
    first.push_back(static_cast<int32_t>(tables.size()));
    for (int i = 0; i < (100 + kMaxNodes) / P + 1; ++i) tables.push_back(below(1000));
    for (int w = 0; w < W; ++w) open.push_back(below(4) == 0 ? kNoNode : below(kMaxNodes));
  }
  std::vector<int32_t> want_places;
  std::vector<uint64_t> want_masks;
  for (int b = 0; b < B; ++b)
    for (int w = 0; w < W; ++w) {
      const int32_t node = open[static_cast<size_t>(b * W + w)];
      int32_t place = -1;
      uint64_t mask = 0;
      if (node != kNoNode) {
        const int32_t slot = slots[static_cast<size_t>(b)] + node;
        place =
            tables[static_cast<size_t>(first[static_cast<size_t>(b)] + slot / P)] * P + slot % P;
      }
      for (int32_t i = node; i >= 0; i = parents[static_cast<size_t>(b * kMaxNodes + i)])
        mask += uint64_t{1} << i;
      want_places.push_back(place);
      want_masks.push_back(mask);
    }
  const auto n = static_cast<size_t>(B * W);
  DeviceArray<int32_t> places(n), d_open(open), d_parents(parents), d_slots(slots), d_first(first),
      d_tables(tables);
  DeviceArray<uint64_t> masks(n);
  place_nodes({places.data(), {B, W}}, {masks.data(), {B, W}}, {d_open.data(), {B, W}},
              d_parents.data(), {d_slots.data(), {B}}, {d_first.data(), {B}}, d_tables.data(), P,
              nullptr);
  cuda_check(cudaDeviceSynchronize());
  EXPECT_EQ(places.host(), want_places);
  EXPECT_EQ(masks.host(), want_masks);
}

TEST_F(PlaceNodes, KnowsSlotsAndAncestors) {
  for (auto [B, W] : {std::pair{1, 1}, {1, 64}, {3, 5}, {7, 32}, {13, 10}})
    for (uint32_t seed : {0u, 1u, 2u}) {
      SCOPED_TRACE(std::to_string(B) + " x " + std::to_string(W));
      ptxvm::settings().seed = seed;
      run_case(B, W, seed + 10);
    }
  ptxvm::settings().seed = 0;
  if (!ptxvm::on_machine()) return;
  EXPECT_GE(ptxvm::measure("place_nodes_kernel").coverage(), 0.95)
      << ptxvm::unreached_text("place_nodes_kernel");
}

TEST_F(PlaceNodes, NothingToPlace) {
  const uint64_t before = ptxvm::n_launches();
  place_nodes({nullptr, {0, 4}}, {nullptr, {0, 4}}, {nullptr, {0, 4}}, nullptr, {nullptr, {0}},
              {nullptr, {0}}, nullptr, P, nullptr);
  cuda_check(cudaDeviceSynchronize());
  EXPECT_EQ(ptxvm::n_launches(), before);
}

}  // namespace
}  // namespace pf::kernels
