#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "model/assemble_medusa.h"
#include "model/families.h"
#include "model/gguf.h"
#include "model/model.h"
#include "model/model_files.h"
#include "model/safetensors.h"

namespace pf {
namespace {

namespace fs = std::filesystem;

Result<Model> load_gguf(const std::string& path, Content content) {
  auto file = GgufFile::open(path);
  if (!file.ok()) return file.status();
  auto config = config_of_gguf(*file);
  if (!config.ok()) return config.status().within(path);
  std::vector<Tensor> tensors = file->tensors();
  ModelStorage storage;
  storage.files.push_back(file->release());
  auto model =
      assemble(config.take(), std::move(tensors), Naming::kGguf, std::move(storage), content);
  if (!model.ok()) return model.status().within(path);
  model->gguf_path = path;
  return model;
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

Result<std::string> read_text(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file.ok()) return file.status();
  auto bytes = file->bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Adds a file's tensors to `tensors` and its mapping to `storage`.
Status add_file(const std::string& path, std::vector<Tensor>& tensors, ModelStorage& storage) {
  auto file = SafetensorsFile::open(path);
  if (!file.ok()) return file.status();
  tensors.insert(tensors.end(), file->tensors().begin(), file->tensors().end());
  storage.files.push_back(file->release());
  return {};
}

// All shards of a folder. Every tensor of the index must lie in the shard that the index names.
Status add_shards(const fs::path& folder, const std::string& index_path,
                  std::vector<Tensor>& tensors, ModelStorage& storage) {
  auto text = read_text(index_path);
  if (!text.ok()) return text.status();
  auto index = parse_shard_index(*text);
  if (!index.ok()) return index.status().within(index_path);
  std::unordered_map<std::string, std::string> file_of;  // tensor -> shard
  for (const std::string& name : index->files) {
    size_t first = tensors.size();
    Status s = add_file((folder / name).string(), tensors, storage);
    if (!s.ok()) return s;
    for (size_t i = first; i < tensors.size(); ++i) {
      auto [at, is_new] = file_of.emplace(tensors[i].name, name);
      if (is_new) continue;
      return invalid(index_path + ": tensor '" + tensors[i].name + "' lies in " + at->second +
                     " and in " + name);
    }
  }
  for (const auto& [tensor, name] : index->tensors) {
    auto at = file_of.find(tensor);
    if (at == file_of.end() || at->second != name) {
      return invalid(index_path + ": tensor '" + tensor + "' is not in " + name);
    }
  }
  return {};
}

Result<ModelConfig> read_config(const fs::path& folder) {
  auto config_text = read_text((folder / "config.json").string());
  if (!config_text.ok()) return config_text.status();
  std::string generation_text;
  if (std::string path = (folder / "generation_config.json").string(); is_there(path)) {
    auto text = read_text(path);
    if (!text.ok()) return text.status();
    generation_text = text.take();
  }
  auto config = config_of_json(*config_text, generation_text);
  return config.ok() ? config : config.status().within(folder.string());
}

// Medusa heads, whose config.json says little and may be missing.
Result<Model> load_medusa(const std::string& weights, std::string_view config_json) {
  std::vector<Tensor> tensors;
  ModelStorage storage;
  if (Status s = add_file(weights, tensors, storage); !s.ok()) return s;
  auto model = assemble_medusa(std::move(tensors), config_json, std::move(storage));
  return model.ok() ? std::move(model) : model.status().within(weights);
}

Result<Model> load_hugging_face(const fs::path& folder, const std::string& weights, bool sharded) {
  auto config = read_config(folder);
  if (!config.ok()) return config.status();
  std::vector<Tensor> tensors;
  ModelStorage storage;
  Status s =
      sharded ? add_shards(folder, weights, tensors, storage) : add_file(weights, tensors, storage);
  if (!s.ok()) return s;
  auto model =
      assemble(config.take(), std::move(tensors), Naming::kHuggingFace, std::move(storage));
  if (!model.ok()) return model.status().within(weights);
  return model;
}

Result<Model> load_shapes_of(const fs::path& folder) {
  auto config = read_config(folder);
  if (!config.ok()) return config.status();
  auto model = model_without_weights(config.take());
  return model.ok() ? std::move(model) : model.status().within(folder.string());
}

Result<Model> load_any(const std::string& path, Content content) {
  using Form = ModelFiles::Form;
  if (content == Content::kShapes && !is_there(path)) return known_shape(path);
  auto files = find_model_files(path);
  if (!files.ok()) return files.status();
  if (files->form == Form::kConfigOnly && content == Content::kWeights)
    return only_gguf_in(path).status();  // what a folder without weights lacks
  switch (files->form) {
    case Form::kGguf:
      return load_gguf(files->weights, content);
    case Form::kMedusa:
      return load_medusa(files->weights, files->medusa_config);
    case Form::kConfigOnly:
      return load_shapes_of(files->folder);
    case Form::kSafetensors:
    case Form::kShards:
      break;
  }
  return load_hugging_face(files->folder, files->weights, files->form == Form::kShards);
}

}  // namespace

Result<Model> load_model(const std::string& path, Role role, Content content) {
  auto model = load_any(path, content);
  if (!model.ok()) return model;
  ModelConfig& c = model->config;
  auto family = find_family(c.architecture);  // Medusa heads are of none, and turn nothing
  if (c.rope_theta == 0 && role == Role::kTarget && family.ok()) {
    c.rope_theta = (*family)->default_rope_theta;
  }
  return model;
}

}  // namespace pf
