#include "text/byte_alphabet.h"

#include <array>

#include "text/utf8.h"

namespace pf {
namespace {

constexpr bool stands_for_itself(int b) {
  return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> letter{};
  std::array<int, 512> byte{};

  constexpr Alphabet() {
    for (int& b : byte) b = -1;
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      letter[b] = stands_for_itself(b) ? static_cast<char32_t>(b) : next++;
      byte[letter[b]] = b;
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

char32_t letter_of_byte(uint8_t byte) { return kAlphabet.letter[byte]; }

int byte_of_letter(char32_t letter) {
  return letter < kAlphabet.byte.size() ? kAlphabet.byte[letter] : -1;
}

std::string bytes_of_letters(std::string_view token) {
  std::string out;
  while (!token.empty()) {
    const Utf8Scan s = scan_utf8(token);
    const int byte =
        s.verdict == Utf8Scan::Verdict::kValid ? byte_of_letter(first_code_point(token).value) : -1;
    if (byte >= 0)
      out.push_back(static_cast<char>(byte));
    else
      out += token.substr(0, s.length);
    token.remove_prefix(s.length);
  }
  return out;
}

}  // namespace pf
