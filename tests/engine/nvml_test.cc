// Truth: a driver that the test plays; and what dynamic alpha makes of its figure.
#include "engine/nvml.h"

#include <gtest/gtest.h>

#include "engine/hash_model.h"
#include "engine/step.h"

namespace pf {
namespace {

// One driver for all tests: NVML's functions carry no context.
struct Driver {
  int init = 0, device = 0, rates = 0;  // what they answer
  unsigned percent = 0;
  int n_reads = 0;
} driver;

int init() { return driver.init; }
int device(unsigned index, void** out) {
  *out = &driver;
  return index == 0 ? driver.device : 2;
}
int rates(void* device, NvmlApi::Rates* out) {
  EXPECT_EQ(device, &driver);
  ++driver.n_reads;
  out->gpu = driver.percent;
  return driver.rates;
}
const NvmlApi kApi{init, device, rates};

class Nvml : public testing::Test {
 protected:
  void SetUp() override { driver = {}; }
};

TEST_F(Nvml, AnAbsentLibraryIsSaidClearly) {
  Result<NvmlApi> api = open_nvml("libno-such-management.so.1");
  ASSERT_FALSE(api.ok());
  EXPECT_EQ(api.status().code(), Code::kUnavailable);
  EXPECT_NE(api.status().message().find("libno-such-management.so.1"), std::string::npos);
  EXPECT_NE(api.status().message().find("no NVIDIA driver"), std::string::npos);
}

TEST_F(Nvml, ALibraryOfSomethingElseIsRefused) {
  Result<NvmlApi> api = open_nvml("libm.so.6");
  ASSERT_FALSE(api.ok());
  EXPECT_NE(api.status().message().find("lacks functions"), std::string::npos);
}

TEST_F(Nvml, ADriverThatFailsIsRefused) {
  driver.init = 9;
  EXPECT_NE(NvmlUtilisation::create(kApi).status().message().find("error 9"), std::string::npos);
  driver.init = 0;
  driver.device = 6;
  EXPECT_NE(NvmlUtilisation::create(kApi).status().message().find("no device"), std::string::npos);
}

TEST_F(Nvml, ItIsAskedTenTimesASecondAtMost) {
  Result<NvmlUtilisation> nvml = NvmlUtilisation::create(kApi);
  ASSERT_TRUE(nvml.ok());
  driver.percent = 37;
  for (int64_t ms = 0; ms < 1000; ++ms) EXPECT_EQ(nvml->read(ms * 1000), 37);
  EXPECT_EQ(driver.n_reads, 10);
  driver.rates = 15;
  EXPECT_EQ(nvml->read(1'000'000), std::nullopt);
  driver.rates = 0;
  driver.percent = 80;
  EXPECT_EQ(nvml->read(1'050'000), std::nullopt) << "what is known is a tenth of a second old";
  EXPECT_EQ(nvml->read(1'100'000), 80);
}

// Utilisation 80: alpha 0.5 - 4 * 0.05 = 0.3 and what acceptance adds. Where the driver is silent
// the rows of the step count.
TEST_F(Nvml, DynamicAlphaFollowsTheDriversFigure) {
  for (bool silent : {false, true}) {
    driver = {};
    driver.percent = 80;
    driver.rates = silent ? 15 : 0;
    StepParts parts;
    parts.kv = {64, 4, 1, true};
    parts.target = std::make_unique<HashBackend>(HashModel{}, 64, 4, 128);
    parts.max_context = 128;
    parts.alpha.smoothing = 1;
    auto nvml = std::make_shared<NvmlUtilisation>(NvmlUtilisation::create(kApi).take());
    parts.utilisation = [nvml](int64_t now_us) { return nvml->read(now_us); };
    Clock clock(1);
    BoundedQueue<std::unique_ptr<Request>> inbox(4);
    BoundedQueue<Event> outbox(256);
    Step step(std::move(parts), clock, &inbox, &outbox);
    auto r = std::make_unique<Request>();
    r->ticket = 1;
    r->prompt = {1, 2, 3};
    r->stop.max_new_tokens = 4;
    step.take(std::move(r));
    while (!step.idle()) {
      step.run();
      while (outbox.try_pop()) {
      }
    }
    EXPECT_GT(driver.n_reads, 0);
    EXPECT_EQ(step.snapshot().utilisation == 80, !silent);
    EXPECT_GT(step.snapshot().utilisation, 0);
    if (!silent) {
      EXPECT_NEAR(step.snapshot().alpha_busy_term, -0.2, 1e-9);
    }
  }
}

}  // namespace
}  // namespace pf
