#include "examples/train/idx_data.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace train {
namespace {

// Three dimensions of bytes, one dimension of bytes.
constexpr uint32_t kImagesMagic = 0x803;
constexpr uint32_t kLabelsMagic = 0x801;
// A header that claims more is damaged.
constexpr uint32_t kMaxImages = 100'000'000;
constexpr uint32_t kMaxSize = 4096;
constexpr size_t kChunk = 1 << 20;

// A file, decompressed if need be: zlib passes what is not gzip through.
class IdxFile {
 public:
  static absl::StatusOr<IdxFile> Open(const std::string& path) {
    gzFile file = gzopen(path.c_str(), "rbe");
    if (file == nullptr) {
      const int error = errno;
      return absl::ErrnoToStatus(error, absl::StrCat("open \"", path, "\""));
    }
    return IdxFile(path, file);
  }

  const std::string& path() const { return path_; }

  absl::Status Error(const std::string& what) const {
    return absl::DataLossError(absl::StrCat("\"", path_, "\": ", what));
  }

  // Appends up to `bytes` to `out`; fewer only at the end of the file.
  absl::Status Read(uint64_t bytes, std::vector<uint8_t>* out) {
    while (bytes > 0) {
      // Piece by piece, so that a header that lies cannot make us allocate more than the file has.
      const size_t piece = static_cast<size_t>(std::min<uint64_t>(bytes, kChunk));
      const size_t old_size = out->size();
      out->resize(old_size + piece);
      const int got = gzread(file_.get(), out->data() + old_size, static_cast<unsigned>(piece));
      out->resize(old_size + static_cast<size_t>(std::max(got, 0)));
      int code = Z_OK;
      const char* message = gzerror(file_.get(), &code);
      if (got < 0 || code < 0) return Error(absl::StrCat("damaged or truncated gzip: ", message));
      if (got == 0) return absl::OkStatus();
      bytes -= static_cast<uint64_t>(got);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<uint32_t>> ReadHeader(uint32_t magic, size_t dimensions) {
    std::vector<uint8_t> bytes;
    absl::Status status = Read(4 * (1 + dimensions), &bytes);
    if (!status.ok()) return status;
    if (bytes.size() < 4 * (1 + dimensions)) {
      return Error(absl::StrCat("truncated: ", bytes.size(), " bytes are no IDX header"));
    }
    std::vector<uint32_t> words;
    for (size_t i = 0; i < bytes.size(); i += 4) {
      words.push_back(uint32_t{bytes[i]} << 24 | uint32_t{bytes[i + 1]} << 16 |
                      uint32_t{bytes[i + 2]} << 8 | uint32_t{bytes[i + 3]});
    }
    if (words[0] != magic) {
      return Error(
          absl::StrFormat("wrong magic number 0x%08x, 0x%08x is expected", words[0], magic));
    }
    words.erase(words.begin());
    if (words[0] == 0 || words[0] > kMaxImages) {
      return Error(absl::StrCat("its header says ", words[0], " entries; 1 to ", kMaxImages,
                                " are accepted"));
    }
    return words;
  }

  absl::Status ReadBody(uint64_t bytes, std::vector<uint8_t>* out) {
    absl::Status status = Read(bytes, out);
    if (!status.ok()) return status;
    if (out->size() < bytes) {
      return Error(absl::StrCat("truncated: it holds ", out->size(), " of ", bytes,
                                " bytes that its header promises"));
    }
    std::vector<uint8_t> tail;
    if (status = Read(1, &tail); !status.ok()) return status;
    if (!tail.empty()) return Error("it is longer than its header says");
    return absl::OkStatus();
  }

 private:
  struct Closer {
    void operator()(gzFile file) const { gzclose(file); }
  };
  IdxFile(std::string path, gzFile file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<gzFile_s, Closer> file_;
};

// The first spelling that exists.
absl::StatusOr<IdxFile> Find(const std::string& directory, const std::string& name,
                             const std::string& kind) {
  const std::string usual = absl::StrCat(directory, "/", name, "-", kind);
  for (const char* separator : {"-", "."}) {
    for (const char* suffix : {"", ".gz"}) {
      const std::string path = absl::StrCat(directory, "/", name, "-", kind, separator,
                                            kind == "images" ? "idx3" : "idx1", "-ubyte", suffix);
      std::error_code ignored;
      if (std::filesystem::exists(path, ignored)) return IdxFile::Open(path);
    }
  }
  return absl::NotFoundError(absl::StrCat("\"", usual, kind == "images" ? "-idx3" : "-idx1",
                                          "-ubyte\": no such file, plain or .gz; --data takes a "
                                          "directory with MNIST's four files"));
}

absl::Status LoadImages(IdxFile file, ImageSet* set) {
  set->files.push_back(file.path());
  const absl::StatusOr<std::vector<uint32_t>> header = file.ReadHeader(kImagesMagic, 3);
  if (!header.ok()) return header.status();
  const uint32_t height = (*header)[1], width = (*header)[2];
  if (height != width || height == 0 || height > kMaxSize) {
    return file.Error(absl::StrCat("its images are ", height, " x ", width,
                                   "; square ones from 1 to ", kMaxSize, " are accepted"));
  }
  set->count = (*header)[0];
  set->size = static_cast<int>(height);
  return file.ReadBody(uint64_t{(*header)[0]} * height * width, &set->pixels);
}

absl::Status LoadLabels(IdxFile file, ImageSet* set) {
  set->files.push_back(file.path());
  const absl::StatusOr<std::vector<uint32_t>> header = file.ReadHeader(kLabelsMagic, 1);
  if (!header.ok()) return header.status();
  if ((*header)[0] != set->count) {
    return file.Error(absl::StrCat("it has ", (*header)[0], " labels for ", set->count, " images"));
  }
  absl::Status status = file.ReadBody((*header)[0], &set->labels);
  if (!status.ok()) return status;
  const auto worst = std::max_element(set->labels.begin(), set->labels.end());
  if (*worst < kClasses) return absl::OkStatus();
  return file.Error(absl::StrCat("label ", *worst, "; 0 to ", kClasses - 1, " are accepted"));
}

}  // namespace

absl::StatusOr<ImageSet> LoadImageSet(const std::string& directory, const std::string& name) {
  ImageSet set;
  absl::StatusOr<IdxFile> images = Find(directory, name, "images");
  if (!images.ok()) return images.status();
  absl::Status status = LoadImages(*std::move(images), &set);
  if (!status.ok()) return status;
  absl::StatusOr<IdxFile> labels = Find(directory, name, "labels");
  if (!labels.ok()) return labels.status();
  status = LoadLabels(*std::move(labels), &set);
  if (!status.ok()) return status;
  return set;
}

}  // namespace train
