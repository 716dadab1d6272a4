#include <filesystem>

#include "model/families.h"
#include "model/gguf.h"
#include "model/model.h"

namespace pf {
namespace {

Result<Model> load_gguf(const std::string& path) {
  auto file = GgufFile::open(path);
  if (!file.ok()) return file.status();
  auto config = config_of_gguf(*file);
  if (!config.ok()) return config.status().within(path);
  std::vector<Tensor> tensors = file->tensors();
  ModelStorage storage;
  storage.files.push_back(file->release());
  auto model = assemble(config.take(), std::move(tensors), Naming::kGguf, std::move(storage));
  if (!model.ok()) return model.status().within(path);
  return model;
}

}  // namespace

Result<Model> load_model(const std::string& path, Role role) {
  auto model = load_gguf(path);
  if (!model.ok()) return model;
  ModelConfig& c = model->config;
  if (c.rope_theta == 0 && role == Role::kTarget) {
    c.rope_theta = (*find_family(c.architecture))->default_rope_theta;
  }
  return model;
}

}  // namespace pf
