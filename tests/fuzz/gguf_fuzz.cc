#include "fuzz/target.h"
#include "model/families.h"
#include "model/gguf.h"

const pf::fuzz::Target pf::fuzz::target{"gguf", 200000};

// The file, its config, and the model that it holds.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pf;
  Result<GgufFile> file = GgufFile::parse(fuzz::bytes_of(data, size));
  if (!file.ok()) return fuzz::check_refusal(file.status()), 0;
  for (const GgufEntry& e : file->entries()) {
    fuzz::check_readable(e.bytes);
    file->find_strings(e.key);
    file->find_integers(e.key);
    file->find_floats(e.key);
  }
  for (const Tensor& t : file->tensors()) {
    check(t.data.data() >= fuzz::bytes_of(data, size).data() &&
              t.data.data() + t.data.size() <= fuzz::bytes_of(data, size).data() + size,
          "a tensor outside of its file");
    fuzz::check_readable(t.data);
  }
  Result<ModelConfig> config = config_of_gguf(*file);
  if (!config.ok()) return fuzz::check_refusal(config.status()), 0;
  Result<Model> model = assemble(config.take(), file->tensors(), Naming::kGguf, {});
  if (!model.ok()) return fuzz::check_refusal(model.status()), 0;
  ++fuzz::n_taken;
  return 0;
}
