// tokenizer.model is one protobuf message (sentencepiece_model.proto). Only its wire format is
// needed: a list of (field number, wire type, value), nested twice.
#include <cstring>

#include "text/vocabulary.h"

namespace pf {
namespace {

struct Field {
  uint32_t number;
  uint64_t value = 0;      // varint and fixed types
  std::string_view bytes;  // length-delimited
};

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  bool done() const { return rest_.empty(); }

  // False: the bytes are not a protobuf message.
  bool next(Field* field) {
    uint64_t tag = 0;
    if (!varint(&tag) || tag >> 3 == 0 || tag >> 3 > 0x1FFFFFFF) return false;
    *field = {static_cast<uint32_t>(tag >> 3), 0, {}};
    switch (tag & 7) {
      case 0:
        return varint(&field->value);
      case 1:
        return fixed(8, &field->value);
      case 5:
        return fixed(4, &field->value);
      case 2: {
        uint64_t n = 0;
        if (!varint(&n) || n > rest_.size()) return false;
        field->bytes = rest_.substr(0, n);
        rest_.remove_prefix(n);
        return true;
      }
      default:
        return false;
    }
  }

 private:
  bool varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto b = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      *value |= static_cast<uint64_t>(b & 0x7F) << shift;
      if (b < 0x80) return true;
    }
    return false;
  }

  bool fixed(size_t n, uint64_t* value) {
    if (rest_.size() < n) return false;
    for (size_t i = 0; i < n; ++i)
      *value |= static_cast<uint64_t>(static_cast<uint8_t>(rest_[i])) << (8 * i);
    rest_.remove_prefix(n);
    return true;
  }

  std::string_view rest_;
};

Status malformed(const std::string& where) {
  return invalid("tokenizer.model: " + where + " is cut or not a SentencePiece message");
}

Status read_piece(std::string_view bytes, Vocabulary* v) {
  const std::string where = "piece " + std::to_string(v->tokens.size());
  std::string text;
  float score = 0;
  uint64_t type = 1;
  WireReader reader(bytes);
  for (Field f; !reader.done();) {
    if (!reader.next(&f)) return malformed(where);
    if (f.number == 1) text = f.bytes;
    if (f.number == 2) {
      const auto bits = static_cast<uint32_t>(f.value);
      std::memcpy(&score, &bits, sizeof(score));
    }
    if (f.number == 3) type = f.value;
  }
  if (type < 1 || type > 6) return invalid("tokenizer.model: " + where + " has an unknown type");
  v->tokens.push_back(std::move(text));
  v->scores.push_back(score);
  v->types.push_back(static_cast<TokenType>(type));
  return {};
}

struct Trainer {
  uint64_t model_type = 1;  // 1 unigram, 2 BPE, 3 word, 4 char
  bool space_as_suffix = false;
  int32_t unk = 0, bos = 1, eos = 2, pad = -1;
};

Status read_trainer(std::string_view bytes, Trainer* t) {
  WireReader reader(bytes);
  for (Field f; !reader.done();) {
    if (!reader.next(&f)) return malformed("trainer_spec");
    const auto id = static_cast<int32_t>(f.value);
    if (f.number == 3) t->model_type = f.value;
    if (f.number == 24) t->space_as_suffix = f.value != 0;
    if (f.number == 40) t->unk = id;
    if (f.number == 41) t->bos = id;
    if (f.number == 42) t->eos = id;
    if (f.number == 43) t->pad = id;
  }
  return {};
}

Status read_normalizer(std::string_view bytes, Vocabulary* v) {
  std::string name;
  bool has_map = false, escape = true;
  WireReader reader(bytes);
  for (Field f; !reader.done();) {
    if (!reader.next(&f)) return malformed("normalizer_spec");
    if (f.number == 1) name = f.bytes;
    if (f.number == 2) has_map = !f.bytes.empty();
    if (f.number == 3) v->add_space_prefix = f.value != 0;
    if (f.number == 4) v->remove_extra_spaces = f.value != 0;
    if (f.number == 5) escape = f.value != 0;
  }
  if (name == "nfkc")
    v->unicode_form = UnicodeForm::kNfkc;
  else if (name != "identity" && has_map)
    return Status(Code::kUnimplemented, "tokenizer.model: the normalisation " + excerpt(name) +
                                            " is not supported; identity and nfkc are");
  if (!escape) return Status(Code::kUnimplemented, "tokenizer.model: escape_whitespaces = false");
  return {};
}

std::optional<int32_t> id_if_any(int32_t id, const Vocabulary& v) {
  return id >= 0 && static_cast<size_t>(id) < v.tokens.size() ? std::optional(id) : std::nullopt;
}

}  // namespace

Result<Vocabulary> read_sentencepiece(std::span<const std::byte> file) {
  Vocabulary v;
  v.kind = VocabularyKind::kSentencePieceBpe;
  v.add_space_prefix = v.remove_extra_spaces = true;  // the defaults of normalizer_spec
  v.prefix_after_special = false;
  Trainer trainer;
  WireReader reader({reinterpret_cast<const char*>(file.data()), file.size()});
  for (Field f; !reader.done();) {
    if (!reader.next(&f)) return malformed("the file");
    Status s;
    if (f.number == 1) s = read_piece(f.bytes, &v);
    if (f.number == 2) s = read_trainer(f.bytes, &trainer);
    if (f.number == 3) s = read_normalizer(f.bytes, &v);
    if (!s.ok()) return s;
  }
  if (trainer.model_type != 2)
    return Status(Code::kUnimplemented,
                  "tokenizer.model: only BPE models are supported (model_type " +
                      std::to_string(trainer.model_type) + ")");
  if (trainer.space_as_suffix)
    return Status(Code::kUnimplemented, "tokenizer.model: treat_whitespace_as_suffix");
  v.unk = id_if_any(trainer.unk, v);
  v.bos = id_if_any(trainer.bos, v);
  v.eos = id_if_any(trainer.eos, v);
  v.pad = id_if_any(trainer.pad, v);
  v.add_bos = v.bos.has_value();
  if (Status s = check_vocabulary(&v); !s.ok()) return s.within("tokenizer.model");
  return v;
}

}  // namespace pf
