*,

systembe brief

userhé <|im_end|>Jmodel"