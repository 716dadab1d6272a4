#include "backend/cpu/packed_matrix.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "model/int4_rows.h"
#include "model/quantize.h"

namespace pf {
namespace {

void read_int8(const std::byte* block, uint8_t* q, f16* d) {
  std::memcpy(d, block, 2);
  for (int i = 0; i < kGroup; ++i)
    q[i] = static_cast<uint8_t>(static_cast<int8_t>(block[2 + i]) + 128);
}

// Rows of several tensors under one count.
struct RowSource {
  std::span<const Tensor* const> tensors;
  const Tensor* find(int64_t* row) const {
    for (const Tensor* t : tensors) {
      if (*row < t->rows()) return t;
      *row -= t->rows();
    }
    return nullptr;
  }
};

using Quad [[gnu::vector_size(16), gnu::aligned(4), gnu::may_alias]] = uint32_t;

// out[j][i] = in[i][j] for rows of `in_row` words and of kTileRows words.
void turn_4x4(const uint32_t* in, int64_t in_row, uint32_t* out) {
  auto row = [&](int64_t i) { return *reinterpret_cast<const Quad*>(in + i * in_row); };
  Quad a = row(0), b = row(1), c = row(2), d = row(3);
  Quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  Quad ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  Quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  Quad cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  auto write = [&](int64_t j, Quad v) { *reinterpret_cast<Quad*>(out + j * kTileRows) = v; };
  write(0, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
  write(1, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
  write(2, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
  write(3, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
}

class Packer {
 public:
  Packer(const RowSource& source, PackedMatrix* out, Progress* progress)
      : source_(source), out_(out), tally_(progress) {
    width_ = out->n_steps * step_width(out->format);
    if (out->is_float()) {
      values_.assign(static_cast<size_t>(width_), 0.0f);
      words_.resize(static_cast<size_t>(kTileRows * out->n_steps));
    } else {
      values_.assign(static_cast<size_t>(kTileRows * width_), 0.0f);
      numbers_.resize(static_cast<size_t>(width_));
      scales_.resize(static_cast<size_t>(width_ / kGroup));
      minimums_.resize(scales_.size());
      blocks_.resize(kTileRows * scales_.size() * 34);
    }
  }

  Status pack_tile(int64_t tile) {
    std::byte* out = out_->data + tile * out_->tile_bytes();
    int64_t first = tile * kTileRows, n = std::min<int64_t>(kTileRows, out_->n - first);
    for (int64_t r = 0, rows; r < n; r += rows) {
      int64_t in_tensor = first + r;
      const Tensor* t = source_.find(&in_tensor);
      rows = std::min(n - r, t->rows() - in_tensor);
      tally_.add(rows * row_bytes(t->type, t->cols()));
      if (out_->is_float()) {
        for (int64_t i = 0; i < rows; ++i) {
          dequantize_rows(*t, in_tensor + i, 1, values_.data());
          keep_words(r + i);
        }
      } else if (Status s = pack_groups(*t, in_tensor, rows, out, r); !s.ok()) {
        return s.within(t->name);
      }
    }
    if (!out_->is_float()) return {};
    std::fill(words_.begin() + n * out_->n_steps, words_.end(), 0u);
    write_words(out);
    return {};
  }

 private:
  // The row in `values_` as what one step reads of it: a float, or two bf16.
  void keep_words(int64_t r) {
    uint32_t* words = &words_[static_cast<size_t>(r * out_->n_steps)];
    if (out_->format == WeightFormat::kF32) {
      std::memcpy(words, values_.data(), static_cast<size_t>(out_->n_steps) * 4);
      return;
    }
    // As to_bf16 rounds, without a branch: weights are finite (check_finite).
    for (int64_t s = 0; s < out_->n_steps; ++s) {
      uint32_t low = std::bit_cast<uint32_t>(values_[static_cast<size_t>(2 * s)]);
      uint32_t high = std::bit_cast<uint32_t>(values_[static_cast<size_t>(2 * s + 1)]);
      low += 0x7fffu + (low >> 16 & 1u);
      high += 0x7fffu + (high >> 16 & 1u);
      words[s] = low >> 16 | (high & 0xffff0000u);
    }
  }

  // Turns the rows' words: four rows by four steps at a time, in registers.
  void write_words(std::byte* tile) {
    int64_t n_steps = out_->n_steps;
    for (int64_t r = 0; r < kTileRows; r += 4) {
      const uint32_t* from = &words_[static_cast<size_t>(r * n_steps)];
      uint32_t* to = reinterpret_cast<uint32_t*>(tile) + r;
      int64_t s = 0;
      for (; s + 4 <= n_steps; s += 4) turn_4x4(from + s, n_steps, to + s * kTileRows);
      for (; s < n_steps; ++s)
        for (int64_t i = 0; i < 4; ++i) to[s * kTileRows + i] = from[i * n_steps + s];
    }
  }

  // Rows [row, row + n) of a tensor to rows [r, r + n) of a tile. They are quantised together,
  // which fills the search's registers.
  Status pack_groups(const Tensor& t, int64_t row, int64_t n, std::byte* tile, int64_t r) {
    if (out_->format == WeightFormat::kInt4Wide) {
      for (int64_t i = 0; i < n; ++i) {
        const Int4Row out{numbers_.data(), scales_.data(), minimums_.data()};
        if (Status s = read_int4_row(t, row + i, 4 * kGroup, out); !s.ok()) return s;
        write_row(tile, r + i);
      }
      return {};
    }
    bool four = out_->format == WeightFormat::kInt4;
    const std::byte* blocks = t.data.data() + row * row_bytes(t.type, t.cols());
    TensorType type = t.type;
    bool as_is =
        four ? type == TensorType::kQ4_0 || type == TensorType::kQ4_1 : type == TensorType::kQ8_0;
    if (!as_is) {
      type = four ? TensorType::kQ4_1 : TensorType::kQ8_0;
      for (int64_t i = 0; i < n; ++i)
        dequantize_rows(t, row + i, 1, &values_[static_cast<size_t>(i * width_)]);
      if (Status s = quantize_row(type, values_.data(), n * width_, blocks_.data()); !s.ok())
        return s;
      blocks = blocks_.data();
    }
    for (int64_t i = 0; i < n; ++i, blocks += row_bytes(type, width_)) {
      read_row(type, blocks);
      write_row(tile, r + i);
    }
    return {};
  }

  // Of groups of 32.
  void read_row(TensorType type, const std::byte* blocks) {
    int64_t bytes = block_shape(type).bytes;
    for (size_t g = 0; g < scales_.size(); ++g) {
      const std::byte* block = blocks + static_cast<int64_t>(g) * bytes;
      uint8_t* numbers = &numbers_[g * kGroup];
      if (out_->format == WeightFormat::kInt4)
        read_int4_block(block, type == TensorType::kQ4_1, numbers, &scales_[g], &minimums_[g]);
      else
        read_int8(block, numbers, &scales_[g]);
    }
  }

  // The row as it was read into row r of a tile.
  void write_row(std::byte* tile, int64_t r) {
    const WeightFormat format = out_->format;
    const uint8_t* numbers = numbers_.data();
    std::byte* lines = tile;
    for (int64_t s = 0; s < out_->n_steps; ++s) {
      for (int64_t b = 0; b < n_blocks(format); ++b, lines += block_bytes(format))
        for (int q = 0; q < 8; ++q)
          for (int i = 0; i < 4; ++i) {
            std::byte v = std::byte{*numbers++};
            if (is_int4(format))
              lines[q / 2 * 64 + r * 4 + i] |= v << (q % 2 * 4);
            else
              lines[q * 64 + r * 4 + i] = v;
          }
      std::memcpy(lines + 2 * r, &scales_[static_cast<size_t>(s)], 2);
      if (is_int4(format)) std::memcpy(lines + 32 + 2 * r, &minimums_[static_cast<size_t>(s)], 2);
      lines += step_bytes(format) - n_blocks(format) * block_bytes(format);
    }
  }

  RowSource source_;
  PackedMatrix* out_;
  ProgressTally tally_;
  int64_t width_ = 0;             // columns with their padding
  std::vector<float> values_;     // one row, or those of a tile to be quantised; padded with zeros
  std::vector<uint32_t> words_;   // [16][steps]
  std::vector<uint8_t> numbers_;  // one row of ints: w = scale * number + minimum
  std::vector<f16> scales_, minimums_;  // [groups]
  std::vector<std::byte> blocks_;
};

}  // namespace

void PackedMatrix::read_row(int64_t row, float* out) const {
  const uint32_t* words =
      reinterpret_cast<const uint32_t*>(data + row / kTileRows * tile_bytes()) + row % kTileRows;
  for (int64_t i = 0; i < k; ++i) {
    int64_t step = format == WeightFormat::kF32 ? i : i / 2;
    uint32_t word = words[step * kTileRows];
    if (format == WeightFormat::kBf16) word = i % 2 == 0 ? word << 16 : word & 0xffff0000u;
    out[i] = std::bit_cast<float>(word);
  }
}

Result<PackedMatrix> pack_matrix(std::span<const Tensor* const> tensors, WeightFormat format,
                                 ThreadPool& pool, std::byte* into, Progress* progress) {
  PackedMatrix out;
  out.format = format;
  out.k = tensors[0]->cols();
  for (const Tensor* t : tensors) out.n += t->rows();
  check(format != WeightFormat::kInt4Wide || int4_group_of(4 * kGroup, tensors) == 4 * kGroup,
        "groups of 128 of weights that have none");
  out.n_tiles = (out.n + kTileRows - 1) / kTileRows;
  out.n_steps = n_steps_of(format, out.k);
  if (into == nullptr) out.own = Buffer(static_cast<size_t>(out.bytes()));
  out.data = into ? into : out.own.as();
  Status bad;
  std::mutex mutex;
  pool.run([&](int thread) {
    Packer packer({tensors}, &out, progress);
    Range tiles = split_range(out.n_tiles, 1, pool.size(), thread);
    for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
      Status s = packer.pack_tile(tile);
      if (s.ok()) continue;
      std::lock_guard lock(mutex);
      bad = s;
      return;
    }
  });
  if (!bad.ok()) return bad;
  return out;
}

namespace {

// What a thread takes at once of a matrix that is read as a stream: little enough that threads end
// together, since cores do not get equal shares of the memory.
constexpr int64_t kTakeBytes = 64 << 10;

// The last tile of a matrix whose rows are no multiple of 16: by way of a buffer.
void multiply_edge(const ProductArgs& a, GemmKernel kernel, GemmArgs args, int M, int64_t width) {
  alignas(64) float tile[kMaxChunkRows * kTileRows];
  float* y = args.out;
  args.out = tile;
  args.out_row = kTileRows;
  args.add = false;
  kernel(args);
  for (int m = 0; m < M; ++m)
    for (int64_t i = 0; i < width; ++i) {
      float v = tile[m * kTileRows + i];
      y[m * a.ldy + i] = a.add ? y[m * a.ldy + i] + v : v;
    }
}

// Tiles [begin, end), all rows.
void multiply_tiles(const CpuKernels& kernels, const ProductArgs& a, int64_t begin, int64_t end,
                    int widest) {
  const PackedMatrix& w = *a.w;
  const GemmKernel(*table)[kMaxChunkRows] = kernels.gemm[static_cast<int>(w.format)];
  int64_t chunk = chunk_rows(kernels, w.format, a.m);
  for (int64_t row = 0; row < a.m; row += chunk) {
    int M = static_cast<int>(std::min<int64_t>(chunk, a.m - row));
    int R = widest;
    for (int64_t tile = begin; tile < end; tile += R) {
      bool edge = (tile + 1) * kTileRows > w.n;
      R = static_cast<int>(edge ? 1 : std::min<int64_t>(R, w.n / kTileRows - tile));
      R = static_cast<int>(std::min<int64_t>(R, end - tile));
      while (table[R - 1][M - 1] == nullptr) --R;
      GemmArgs args{w.data + tile * w.tile_bytes(),
                    w.tile_bytes(),
                    a.rows + packed_rows_bytes(w.format, w.n_steps, row),
                    w.n_steps,
                    a.y + row * a.ldy + tile * kTileRows,
                    a.ldy,
                    a.add};
      if (edge)
        multiply_edge(a, table[0][M - 1], args, M, w.n - tile * kTileRows);
      else
        table[R - 1][M - 1](args);
    }
  }
}

}  // namespace

void multiply(const CpuKernels& kernels, const ProductArgs& a, WorkShare* share, int thread) {
  const PackedMatrix& w = *a.w;
  int format = static_cast<int>(w.format), chunk = chunk_rows(kernels, w.format, a.m);
  bool few = a.m <= kernels.few_rows[format];  // either way a tile's elements are summed alike
  int widest = few ? 1 : kMaxTiles;
  while (kernels.gemm[format][widest - 1][chunk - 1] == nullptr) --widest;
  int64_t grain = few ? std::max<int64_t>(1, kTakeBytes / w.tile_bytes()) : widest;
  for (Range r; (r = share->take(w.n_tiles, grain, thread)).begin < r.end;)
    multiply_tiles(kernels, a, r.begin, r.end, widest);
}

}  // namespace pf
