// Truth: the order of events. A target on a device of its own computes on one thread while the
// draft drafts on the engine's; here the target's pass does not end before the draft has begun on
// what comes next, so that a step which drafted only when the target is done would never end.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "engine/hash_model.h"
#include "engine/step.h"
#include "speculation/model_drafter.h"

namespace pf {
namespace {

using namespace std::chrono_literals;

// What happened in which order: 'F' the target's pass begins, 'd' a pass of the draft, 'E' the
// target's pass ends.
class Events {
 public:
  void add(char event) {
    std::lock_guard lock(mutex_);
    order_ += event;
    changed_.notify_all();
  }
  // n passes of the draft behind the last F; false: not within a time in which any machine would
  // have got there.
  bool wait_for_drafts(size_t n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 60s, [&] { return order_.size() - order_.rfind('F') > n; });
  }
  std::string order() {
    std::lock_guard lock(mutex_);
    return order_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string order_;
};

// A target as a device is: forward() only begins the pass, whoever asks for its results waits. A
// pass over a draft ends when the next draft is made.
class SlowDevice final : public Backend {
 public:
  SlowDevice(std::unique_ptr<HashBackend> inner, Events* events)
      : inner_(std::move(inner)), events_(events) {}
  ~SlowDevice() override { wait(); }

  const BackendInfo& info() const override { return inner_->info(); }
  void forward(const Batch& batch) override {
    wait();
    const auto n_drafted = std::count_if(batch.masks.begin(), batch.masks.end(),
                                         [](uint64_t mask) { return mask != 0; });
    // A pass for the token that the target will add by itself, then one for each that follows it.
    const auto n_passes = static_cast<size_t>(n_drafted > 0 ? 1 + n_drafted : 0);
    events_->add('F');
    pass_ = std::thread([this, batch, n_passes] {
      if (!events_->wait_for_drafts(n_passes)) late = true;
      inner_->forward(batch);
      events_->add('E');
    });
  }
  void accept(std::span<const AcceptJob> jobs, std::span<AcceptResult> results) override {
    wait();
    inner_->accept(jobs, results);
  }
  void score(std::span<const ScoreJob> jobs, std::span<TokenLogprob> results) override {
    wait();
    inner_->score(jobs, results);
  }
  void read_logits(int32_t first, int32_t n, View<float, 2> out) override {
    wait();
    inner_->read_logits(first, n, out);
  }
  HiddenStates hidden_states() const override { return inner_->hidden_states(); }
  void keep_hidden(std::span<const HiddenKeep> keeps) override { inner_->keep_hidden(keeps); }
  void propose(std::span<const ProposeJob>, std::span<DraftTree>) override {}
  void propose_early(int32_t, std::span<const ProposeJob>, std::span<DraftTree>) override {}
  void copy_blocks(std::span<const BlockCopy> copies) override {
    wait();
    inner_->copy_blocks(copies);
  }
  void move_slots(std::span<const SlotMove> moves) override {
    wait();
    inner_->move_slots(moves);
  }

  bool late = false;  // read it once nothing runs

 private:
  void wait() {
    if (pass_.joinable()) pass_.join();
  }

  std::unique_ptr<HashBackend> inner_;
  Events* events_;
  std::thread pass_;
};

struct Told {
  std::string order;
  bool late = false;
  int64_t n_ahead_used = 0;
  std::vector<int32_t> tokens;
};

// One text of `n_new` tokens, four drafted in every round by a draft that is right on `agreement`
// of 64 texts.
Told draft_and_verify(int32_t agreement, int32_t n_new) {
  const HashModel model;
  constexpr int32_t kBlocks = 64, kBlock = 4, kContext = 256, kDrafted = 4;
  Events events;
  Clock clock{1'000'000};
  BoundedQueue<std::unique_ptr<Request>> inbox(4);
  BoundedQueue<Event> outbox(1 << 12);
  StepParts parts;
  parts.kv = {kBlocks, kBlock, 1, true};
  parts.scheduler = {4, 64};
  auto device = std::make_unique<SlowDevice>(
      std::make_unique<HashBackend>(model, kBlocks, kBlock, kContext), &events);
  SlowDevice* target = device.get();
  parts.target = std::move(device);
  HashModel small = model;
  small.agreement = agreement;
  auto backend = std::make_unique<HashBackend>(small, kBlocks, kBlock, kContext);
  backend->on_pass = [&](int32_t) { events.add('d'); };
  ModelDrafter::Options o;
  o.name = "model";
  o.windows = {kContext, 0, kBlocks, kBlock, true};
  o.max_rows = 64;
  o.overlaps = true;
  auto drafter = std::make_unique<ModelDrafter>(std::move(o), std::move(backend));
  ModelDrafter* draft = drafter.get();
  parts.drafters.add(std::move(drafter));
  parts.max_context = kContext;
  parts.num_speculative_tokens = kDrafted;
  parts.length.cost_ratios = {0.1f};
  Step step(std::move(parts), clock, &inbox, &outbox);

  auto r = std::make_unique<Request>();
  r->ticket = 1;
  r->prompt = {1, 2, 3, 4, 5};
  r->stop.max_new_tokens = n_new;
  r->speculation.mode = SpeculationParams::Mode::kFixed;
  r->speculation.n_draft_tokens = kDrafted;
  const Request asked = *r;
  EXPECT_TRUE(inbox.try_push(std::move(r)));
  Told out;
  do {
    step.run();
    clock.advance_us(1000);
    while (auto e = outbox.try_pop())
      out.tokens.insert(out.tokens.end(), e->tokens.begin(), e->tokens.end());
  } while (!step.idle() && !target->late);
  out.order = events.order();
  out.late = target->late;
  out.n_ahead_used = draft->n_ahead_used();
  if (!out.late) {
    EXPECT_EQ(out.tokens, plain_run(model, asked, 0, kContext).tokens);
  }
  return out;
}

TEST(Overlap, TheDraftDraftsWhileTheTargetComputes) {
  for (int32_t agreement : {0, 40, 64}) {
    Told r = draft_and_verify(agreement, 60);
    EXPECT_FALSE(r.late) << "the target's pass has waited for the draft in vain: " << r.order;
    EXPECT_NE(r.order.find("FdddddE"), std::string::npos) << r.order;
  }
}

// A draft that is always right has always been ready: behind the first round, and before the last
// one, which is shorter, no pass of it lies between two passes of the target.
TEST(Overlap, ADraftThatIsRightCostsTheTargetNoTime) {
  Told r = draft_and_verify(64, 61);
  ASSERT_FALSE(r.late);
  size_t first = r.order.find('d'), begin = r.order.find('E', r.order.find("Fd"));
  ASSERT_NE(first, std::string::npos);
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(r.order.find("Ed", begin), std::string::npos) << r.order;
  EXPECT_GE(r.n_ahead_used, 10);
}

}  // namespace
}  // namespace pf
