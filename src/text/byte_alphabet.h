#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pf {

// The GPT-2 byte alphabet: every byte has a printable code point, itself where it is printable in
// Latin-1 and one from U+0100 upwards where it is not. Byte-level vocabularies are written in it.

// The code point that stands for a byte.
char32_t letter_of_byte(uint8_t byte);

// The byte that a code point stands for, -1 when it is not in the alphabet.
int byte_of_letter(char32_t letter);

// A stored token as the bytes it means. What is not in the alphabet means itself.
std::string bytes_of_letters(std::string_view token);

}  // namespace pf
