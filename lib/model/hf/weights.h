#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/hf/weight_files.h"
#include "model/model.h"

namespace trainer::model {

// A model whose weights lie in files by name: a Hugging Face directory. Of models that transformers has too, by its names.
class HfModel : public Model {
 public:
  void load_pretrained(const std::filesystem::path& directory) override;
  // `per_parameter` (a tensor for each of parameters(), in order and of its shape: values or gradients) as
  // views by transformers' names.
  virtual NamedTensors hf_views(const std::vector<at::Tensor>& per_parameter) const = 0;
  // Fills a weight of a new model, as transformers does.
  virtual void initialize(const std::string& hf_name, const at::Tensor& weight,
                          at::Generator& generator) const = 0;
  // Names under which files may have a weight, the present one first.
  virtual std::vector<std::string> aliases(const std::string& hf_name) const = 0;
  // Whether files have it and no weight is lost with it.
  virtual bool is_ignored(const std::string& file_name) const = 0;
  // For messages: what it is, and what else than the files determines its shapes.
  virtual std::string kind() const = 0;
  virtual std::string shape_hint() const = 0;
};

// How they fit, as load_weights() reports and throws: from the headers of files, no weight is read or made.
LoadReport check_weights(const HfModel& model, const WeightFiles& files, const std::string& where);

// Initializes `model` where `files` (null: none) have no weight, else copies the weight, cast to fp32. The
// random numbers are a function of `seed` alone. Throws CheckpointError with every shape that differs, by
// name; `where` names the files.
LoadReport load_weights(HfModel& model, const WeightFiles* files, const std::string& where, uint64_t seed);

}  // namespace trainer::model
