"""The attention of models: as a configuration promises it, and as a run of a tiny model of its type shows it.

- ``attention`` reads one layer of a ``config.json``, a mapping, an object of Transformers or a module as a
  specification, by the row of its family in ``FAMILIES``; ``block`` reads a whole layer, and ``parameters`` gives its
  weights the names of ``Block``. ``CannotTell`` says what neither the configuration nor the row answers;
- ``specify`` also infers a layer of a family without a row, as ``infer_layer`` does for any family;
- ``infer`` reads the attention of a model type off runs of tiny models; ``lines_of`` returns the lines of
  ``symattn models lock`` for a type, ``tiny`` makes a tiny model, and ``parts_of`` returns what was read off it.

>>> from symattn import configurations
>>> told = {"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32,
...         "rope_theta": 10000.0, "num_hidden_layers": 2}
>>> configurations.attention(told)
Attention(causal=True, heads=4, kv_heads=2, position=Rotary())
>>> configurations.specify(told, 1).source
'row'
"""

from symattn.first_use import offer_names

__all__, __getattr__, __dir__ = offer_names(__name__, __file__)
