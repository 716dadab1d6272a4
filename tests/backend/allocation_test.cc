// Truth: calls of operator new, counted: a step of a warm backend makes none.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "backend/cpu/cpu_backend.h"
#include "backend/tiny_model.h"

namespace {
std::atomic<int64_t> n_allocations{0};
}  // namespace

// Not inlined: GCC would see `new` meet `free` and warn.
[[gnu::noinline]] void* operator new(size_t bytes) {
  n_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  n_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes ? bytes : 1);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace pf {
namespace {

TEST(Allocation, AWarmForwardMakesNone) {
  ThreadPool pool(2);
  Model model = tiny_model({});
  CpuOptions o;
  o.n_blocks = 60;
  o.max_rows = 200;
  o.max_context = 300;
  auto backend = make_cpu_backend(model, nullptr, o, pool).take();
  std::vector<BlockId> blocks, more;
  for (int32_t b = 0; b < 20; ++b) blocks.push_back(b);
  for (int32_t b = 20; b < 40; ++b) more.push_back(b);
  std::vector<int32_t> prompt(150, 5);
  DraftTree tree;
  for (int32_t i = 0; i < 6; ++i) tree.add_one_hot(i, i / 2 - 1);
  std::vector<float> out(static_cast<size_t>(7 * backend->info().vocabulary_size));
  Batch prefill, verify;
  prefill.add(prompt, 0, nullptr, blocks, Batch::Logits::kLast);
  prefill.add(std::span(prompt).first(30), 0, nullptr, more, Batch::Logits::kLast);
  verify.add(std::span(prompt).first(1), 150, &tree, blocks, Batch::Logits::kLast);
  auto step = [&] {
    for (const Batch* batch : {&prefill, &verify}) {
      backend->forward(*batch);
      int32_t n = static_cast<int32_t>(batch->logit_rows.size());
      backend->read_logits(0, n, {out.data(), {n, backend->info().vocabulary_size}});
    }
  };
  step();
  int64_t before = n_allocations.load();
  ASSERT_GT(before, 0) << "the count works";
  step();
  EXPECT_EQ(n_allocations.load(), before);
}

}  // namespace
}  // namespace pf
