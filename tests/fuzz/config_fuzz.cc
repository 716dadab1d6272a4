#include "fuzz/target.h"
#include "model/families.h"

const pf::fuzz::Target pf::fuzz::target{"config", 200000};

// config.json, and behind a byte 0 generation_config.json.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pf;
  std::string_view text = fuzz::text_of(data, size), generation;
  if (size_t zero = text.find('\0'); zero != std::string_view::npos) {
    generation = text.substr(zero + 1);
    text = text.substr(0, zero);
  }
  Result<ModelConfig> config = config_of_json(text, generation);
  if (!config.ok()) return fuzz::check_refusal(config.status()), 0;
  check(check_config(*config).ok(), "a config that was read is refused");
  check(config->n_heads > 0 && config->n_kv_heads > 0 && config->n_layers > 0 && config->width > 0,
        "a model without a size");
  ++fuzz::n_taken;
  return 0;
}
