// Truth: the plain run, token by token, with clients on several threads; and counts of what came
// back.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "engine/engine.h"
#include "engine/harness.h"
#include "engine/load.h"

namespace pf {
namespace {

std::unique_ptr<Engine> make_engine(const HashModel& model, const Clock& clock, int32_t max_queue) {
  EngineParts parts;
  parts.max_queue = max_queue;
  parts.step.kv = {256, 4, 2, true};
  parts.step.scheduler = {16, 64};
  parts.step.target = std::make_unique<HashBackend>(model, 256, 4, 256);
  HashModel draft = model;
  draft.agreement = 40;
  ModelDrafter::Options options;
  options.name = "model";
  options.plane = 1;
  options.max_context = 256;
  parts.step.drafters.add(std::make_unique<ModelDrafter>(
      std::move(options), std::make_unique<HashBackend>(draft, 256, 4, 256)));
  parts.info.drafters = {{"model", "model", "", 256, 0}};
  parts.step.max_context = 256;
  parts.step.num_speculative_tokens = 3;
  return std::make_unique<Engine>(std::move(parts), clock);
}

TEST(EngineThread, APolicyHoldsFromTheNextStepOn) {
  Clock clock;
  auto engine = make_engine({}, clock, 10);
  EnginePolicy policy = engine->policy();
  EXPECT_EQ(policy.num_draft_tokens, 3);
  EXPECT_EQ(policy.drafters, std::vector<std::string>{"model"});
  auto drafted = [&](uint64_t ticket) {
    int64_t before = engine->snapshot().n_drafted;
    auto r = std::make_unique<Request>();
    r->ticket = ticket;
    r->prompt = prompt_of(20, 1);
    r->stop.max_new_tokens = 30;
    EXPECT_TRUE(engine->submit(r));
    while (engine->step_once()) engine->outbox().try_pop();
    return engine->snapshot().n_drafted - before;
  };
  EXPECT_GT(drafted(1), 0);
  policy.speculation = false;
  engine->set_policy(policy);
  EXPECT_FALSE(engine->policy().speculation);
  EXPECT_EQ(drafted(2), 0);
}

TEST(EngineThread, ServesClientsOfSeveralThreadsExactly) {
  HashModel model;
  Clock clock;
  auto engine = make_engine(model, clock, 1000);
  engine->start();
  std::map<uint64_t, std::vector<int32_t>> got;
  std::map<uint64_t, FinishReason> finish;
  std::thread dispatcher([&] {
    for (int32_t open = 60; open > 0;) {
      auto e = engine->outbox().pop();
      auto& to = got[e->ticket];
      to.insert(to.end(), e->tokens.begin(), e->tokens.end());
      if (e->finish == FinishReason::kNone) continue;
      finish[e->ticket] = e->finish;
      --open;
    }
  });
  std::vector<std::thread> clients;
  std::atomic<uint32_t> cancels[60] = {};
  std::mutex mutex;
  std::map<uint64_t, Request> asked;
  for (uint32_t c = 0; c < 3; ++c)
    clients.emplace_back([&, c] {
      for (uint32_t i = 0; i < 20; ++i) {
        auto r = std::make_unique<Request>();
        r->ticket = c * 20 + i;
        r->prompt = prompt_of(static_cast<int32_t>(5 + i), i);
        r->stop.max_new_tokens = 30;
        r->cancel = &cancels[r->ticket];
        {
          std::lock_guard lock(mutex);
          asked.emplace(r->ticket, *r);
        }
        std::atomic<uint32_t>* cancel = &cancels[r->ticket];
        ASSERT_TRUE(engine->submit(r));
        if (i % 5 == 4) {
          cancel->store(~0u);
          engine->cancelled(c * 20 + i);
        }
        engine->snapshot();
      }
    });
  for (auto& t : clients) t.join();
  dispatcher.join();
  for (auto& [ticket, r] : asked) {
    std::vector<int32_t> plain = plain_run(model, r, 0, 256).tokens;
    if (finish[ticket] == FinishReason::kCancelled) {
      EXPECT_TRUE(std::equal(got[ticket].begin(), got[ticket].end(), plain.begin()));
    } else {
      EXPECT_EQ(got[ticket], plain);
    }
  }
}

TEST(EngineThread, RefusesWhatTheQueueCannotHold) {
  HashModel model;
  Clock clock;
  auto engine = make_engine(model, clock, 3);  // not started: nothing leaves the queue
  for (int32_t i = 0; i < 5; ++i) {
    auto r = std::make_unique<Request>();
    r->ticket = static_cast<uint64_t>(i);
    r->prompt = {1};
    EXPECT_EQ(engine->submit(r), i < 3);
    EXPECT_EQ(r != nullptr, i >= 3) << "a refused request stays with the caller";
  }
}

TEST(EngineThread, StopsWithWorkInFlight) {
  HashModel model;
  Clock clock;
  auto engine = make_engine(model, clock, 100);
  engine->start();
  for (int32_t i = 0; i < 20; ++i) {
    auto r = std::make_unique<Request>();
    r->ticket = static_cast<uint64_t>(i);
    r->prompt = prompt_of(30, 1);
    r->stop.max_new_tokens = 200;
    ASSERT_TRUE(engine->submit(r));
  }
  engine->finish_all(FinishReason::kShutdown);
  for (int32_t open = 20; open > 0;) {
    auto e = engine->outbox().pop();
    if (e->finish == FinishReason::kNone) continue;
    --open;
    if (open > 0 && e->finish != FinishReason::kShutdown)
      break;  // came before the call took effect
  }
  engine.reset();
  SUCCEED();
}

}  // namespace
}  // namespace pf
