namespace ringfold {}
